#include "engine/data/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(FirstNonTextByte, TakesWellFormedText) {
  for (const std::string text : {"", "a", "plain ASCII that is longer than eight bytes\r\n\t", "é",
                                 "€", "𝄞", "\x7f", "mixed é € 𝄞 and then ASCII again to the end",
                                 "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(FirstNonTextByte(text), text.size()) << text;
  }
}

TEST(FirstNonTextByte, FindsTheFirstByteThatIsWrong) {
  struct Case {
    std::string bytes;  // after "0123456789"
    const char* what;
  };
  const Case cases[] = {
      {std::string("\0", 1), "NUL"},
      {"\x80", "a continuation byte alone"},
      {"\xc0\x80", "an overlong NUL"},
      {"\xc1\xbf", "an overlong character"},
      {"\xe0\x9f\xbf", "an overlong character of three bytes"},
      {"\xf0\x8f\xbf\xbf", "an overlong character of four bytes"},
      {"\xed\xa0\x80", "a surrogate"},
      {"\xf4\x90\x80\x80", "beyond U+10FFFF"},
      {"\xf5\x80\x80\x80", "beyond U+10FFFF"},
      {"\xff", "no UTF-8 byte"},
      {"\xc3", "cut short"},
      {"\xe2\x82", "cut short"},
      {"\xe2\x82z", "cut short"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(FirstNonTextByte("0123456789" + c.bytes), 10) << c.what;
    EXPECT_EQ(FirstNonTextByte("0123456789" + c.bytes + "more text after it"), 10) << c.what;
  }
}

TEST(CharacterBoundary, IsBeforeACharacterThatWouldBeCut) {
  const std::string text = "a€b";  // bytes: a, three, b
  EXPECT_EQ(CharacterBoundary(text, 0), 0);
  EXPECT_EQ(CharacterBoundary(text, 1), 1);
  EXPECT_EQ(CharacterBoundary(text, 2), 1);
  EXPECT_EQ(CharacterBoundary(text, 3), 1);
  EXPECT_EQ(CharacterBoundary(text, 4), 4);
  EXPECT_EQ(CharacterBoundary(text, 5), 5);
}

}  // namespace
}  // namespace millrace
