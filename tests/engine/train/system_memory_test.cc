#include "engine/train/system_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace millrace {
namespace {

// Files of a system under a folder of their own.
class SystemMemoryTest : public testing::Test {
 protected:
  SystemMemoryTest() {
    std::string pattern = testing::TempDir() + "/system.XXXXXX";
    root_ = mkdtemp(pattern.data());
    Write("/proc/meminfo", "MemTotal:  2000 kB\nMemFree: 5 kB\nMemAvailable:  1000 kB\n");
    Write("/proc/self/cgroup", "4:memory:/old\n0::/jobs/one\n");
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void WriteGroup(const std::string& folder, const std::string& limit, int64_t used,
                  int64_t inactive) {
    Write(folder + "/memory.max", limit + "\n");
    Write(folder + "/memory.current", std::to_string(used) + "\n");
    Write(folder + "/memory.stat",
          "anon 1\nactive_file 7\ninactive_file " + std::to_string(inactive) + "\n");
  }

  std::string root_;
};

TEST_F(SystemMemoryTest, WithoutALimitItIsTheMachines) {
  EXPECT_EQ(FreeMemoryBytes(root_), 1000 * 1024);
  EXPECT_EQ(TotalMemoryBytes(root_), 2000 * 1024);
  WriteGroup("/sys/fs/cgroup/jobs/one", "max", 5000, 0);
  EXPECT_EQ(FreeMemoryBytes(root_), 1000 * 1024);
  EXPECT_EQ(TotalMemoryBytes(root_), 2000 * 1024);
}

TEST_F(SystemMemoryTest, TheTightestGroupAboveTheProcessCounts) {
  WriteGroup("/sys/fs/cgroup/jobs/one", "900000", 100000, 0);
  WriteGroup("/sys/fs/cgroup/jobs", "800000", 700000, 0);
  EXPECT_EQ(FreeMemoryBytes(root_), 100000);
  EXPECT_EQ(TotalMemoryBytes(root_), 800000);
}

TEST_F(SystemMemoryTest, PagesOfFilesThatNobodyUsesAreFree) {
  WriteGroup("/sys/fs/cgroup/jobs/one", "900000", 800000, 300000);
  EXPECT_EQ(FreeMemoryBytes(root_), 400000);
}

TEST_F(SystemMemoryTest, AGroupOutOfSightIsTheOneMounted) {
  Write("/proc/self/cgroup", "0::/\n");
  WriteGroup("/sys/fs/cgroup", "900000", 500000, 0);
  EXPECT_EQ(FreeMemoryBytes(root_), 400000);
}

}  // namespace
}  // namespace millrace
