#include "engine/data/regex.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(absl::string_view pattern, absl::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  RegexScratch scratch;
  std::vector<std::string> matches;
  size_t at = 0, begin = 0, end = 0;
  while (regex.ok() && (*regex)->Find(text, at, &scratch, &begin, &end)) {
    matches.emplace_back(text.substr(begin, end - begin));
    at = end;
  }
  return matches;
}

TEST(Regex, ClassesAreThoseOfUnicode) {
  EXPECT_THAT(Matches("\\p{L}+", "Zoë 中文 1"), ElementsAre("Zoë", "中文"));
  EXPECT_THAT(Matches("\\s+", "a\u3000\u0085b\u180ec"), ElementsAre("\u3000\u0085"));
  EXPECT_THAT(Matches("[^\\s\\p{L}]+", "a\u180e b!"), ElementsAre("\u180e", "!"));
  EXPECT_THAT(Matches("\\d", "٣x"), ElementsAre("٣"));
  EXPECT_THAT(Matches("(?i:'s)", "'S 'ſ"), ElementsAre("'S", "'ſ"));
}

TEST(Regex, LooksBehindAndAhead) {
  EXPECT_THAT(Matches("\\s+(?!\\S)|\\s+", "a   b"), ElementsAre("  ", " "));
  EXPECT_THAT(Matches("(?<=a)b", "ab bb"), ElementsAre("b"));
}

TEST(Regex, RefusesWhatOnigurumaReadsDifferently) {
  for (const char* pattern :
       {"\\h",    "\\bx",    "[a[b]]",      "[a&&b]",     "a{2}+", "a{,2}", "(?m:a)",
        "a(?i)b", "(*UTF)a", "[[:alpha:]]", "(?<name>a)", "a\\1",  "[\\S]", "\\p{Nonsense}",
        "\\xff",  "\\u12",   "\\",          "(",          "[",     "\\p{L"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Regex::Compile(pattern).status())) << pattern;
  }
  EXPECT_THAT(std::string(Regex::Compile("\\h").status().message()),
              HasSubstr("\\h is not supported in the regular expression \\h"));
}

TEST(Regex, RefusesToMatchNothing) {
  EXPECT_THAT(std::string(Regex::Compile("a*").status().message()),
              HasSubstr("matching the empty string is not supported"));
}

}  // namespace
}  // namespace millrace
