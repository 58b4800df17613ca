// The pieces that output is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/cli/human.h"
#include "client/cli/loss_curve.h"
#include "client/cli/status_line.h"
#include "client/cli/terminal.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(Human, QuantitiesAreShort) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(int64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(420)), "0.4s");
  EXPECT_EQ(HumanDuration(absl::Seconds(9.96)), "10s");
  EXPECT_EQ(HumanDuration(absl::Seconds(59.6)), "1m00s");
  EXPECT_EQ(HumanDuration(absl::Minutes(61)), "1h01m");
  EXPECT_EQ(HumanDuration(absl::Hours(50)), "2d02h");
  EXPECT_EQ(HumanDuration(-absl::Seconds(1)), "0.0s");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(12345), "12.3k");
  EXPECT_EQ(HumanCount(4.56e6), "4.56M");
  EXPECT_EQ(HumanPercent(0.9999), "99%");
  EXPECT_EQ(HumanPercent(0.29), "29%");
  EXPECT_EQ(HumanPercent(7), "100%");
}

TEST(Terminal, TextOfOthersCannotControlIt) {
  EXPECT_EQ(Sanitize("a\x1b[2Jb\rc\x7f\xc2\x9b", true), "a?[2Jb?c??");
  EXPECT_EQ(Sanitize("a\nb\tü…", false), "a b ü…");
  EXPECT_EQ(Sanitize("a\nb", true), "a\nb");
}

TEST(Terminal, CutsWholeCharacters) {
  EXPECT_EQ(Ellipsize("üüüü", 4), "üüüü");
  EXPECT_EQ(Ellipsize("üüüü", 3), "üü…");
  EXPECT_EQ(Ellipsize("abc", 1), "…");
}

TEST(Terminal, APipeIsNone) {
  Terminal terminal = DetectTerminal(-1);
  EXPECT_FALSE(terminal.interactive);
  EXPECT_FALSE(terminal.color);
  EXPECT_EQ(terminal.columns, 80);
}

TEST(StatusLine, DropsWhatDoesNotFit) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.columns = 24;
  std::ostringstream out;
  {
    StatusLine line(out, terminal);
    line.Show({"step 345/2000", "17%", "loss 2.3457", "", "eta"});
  }
  EXPECT_EQ(out.str(), "\r\x1b[Kstep 345/2000  17%\r\x1b[K");
}

TEST(StatusLine, IsSilentOnAPipe) {
  std::ostringstream out;
  StatusLine(out, Terminal()).Show({"step"});
  EXPECT_EQ(out.str(), "");
}

TEST(StatusLine, BarsFillFromTheLeft) {
  EXPECT_EQ(ProgressBar(0.5, 6, false), "[##--]");
  EXPECT_EQ(ProgressBar(-1, 6, false), "[----]");
  EXPECT_EQ(ProgressBar(2, 6, true), "[████]");
}

Terminal Ascii() {
  Terminal terminal;
  terminal.unicode = false;
  return terminal;
}

TEST(LossCurve, FallsFromLeftToRight) {
  LossCurve curve;
  for (int step = 1; step <= 8; ++step) curve.Add(step, 9 - step);
  EXPECT_EQ(curve.Plot(Ascii()),
            "loss 8.000 |#       \n"
            "           |##      \n"
            "           |###     \n"
            "           |####.   \n"
            "           |#####.  \n"
            "           |######. \n"
            "     1.000 |#######.\n"
            "            step 1 8\n");
}

TEST(LossCurve, HoldsAnyNumberOfSteps) {
  LossCurve curve;
  for (int64_t step = 1; step <= 300'000; ++step) curve.Add(step, step <= 150'000 ? 4 : 2);
  std::string plot = curve.Plot(Ascii());
  std::vector<std::string> lines = absl::StrSplit(plot, '\n');
  EXPECT_EQ(lines[0].substr(0, 42), "loss 4.000 |" + std::string(30, '#'));
  EXPECT_THAT(lines[0], ::testing::EndsWith("  "));
  EXPECT_THAT(plot, HasSubstr("300000"));
  EXPECT_EQ(curve.first(), 4);
  EXPECT_EQ(curve.last(), 2);
}

TEST(LossCurve, AStepThatComesAgainReplacesWhatFollowedIt) {
  LossCurve curve;
  for (int step = 1; step <= 10; ++step) curve.Add(step, step < 6 ? 3 : 100);
  for (int step = 6; step <= 8; ++step) curve.Add(step, 1);
  EXPECT_THAT(curve.Plot(Ascii()), HasSubstr("loss 3.000"));
  EXPECT_EQ(curve.steps(), 8);
}

TEST(LossCurve, LeavesOutWhatIsNotFinite) {
  LossCurve curve;
  curve.Add(1, 2);
  curve.Add(2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(curve.Plot(Ascii()), "");
  curve.Add(3, 1);
  EXPECT_THAT(curve.Plot(Ascii()), HasSubstr("loss 2.000"));
}

TEST(LossCurve, FitsANarrowTerminal) {
  LossCurve curve;
  for (int step = 1; step <= 100; ++step) curve.Add(step, 1.0 / step);
  Terminal terminal = Ascii();
  terminal.columns = 30;
  for (absl::string_view line : absl::StrSplit(curve.Plot(terminal), '\n')) {
    EXPECT_LE(line.size(), 30);
  }
}

}  // namespace
}  // namespace millrace
