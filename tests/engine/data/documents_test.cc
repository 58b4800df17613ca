#include "engine/data/documents.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All documents, their pieces put together.
std::vector<std::string> ReadAll(const std::string& path) {
  absl::StatusOr<std::vector<DocumentFile>> files = ListDocumentFiles(path);
  EXPECT_TRUE(files.ok()) << files.status();
  DocumentReader reader(*std::move(files));
  std::vector<std::string> documents;
  std::string document;
  DocumentReader::Piece piece;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&piece);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    EXPECT_LE(piece.text.size(), size_t{1} << 20);
    EXPECT_FALSE(piece.text.empty());
    document += piece.text;
    if (piece.ends_document) {
      documents.push_back(document);
      document.clear();
    }
  }
  EXPECT_TRUE(document.empty());
  return documents;
}

std::string ErrorOf(const std::string& path) {
  const absl::StatusOr<DocumentCounts> counts = CheckDocuments(path);
  EXPECT_TRUE(absl::IsInvalidArgument(counts.status())) << counts.status();
  return std::string(counts.status().message());
}

TEST(Documents, AFileIsADocument) {
  const std::string folder = EmptyFolder();
  EXPECT_THAT(ReadAll(WriteText(folder + "/a.txt", "one\ntwo\n")), ElementsAre("one\ntwo\n"));
}

TEST(Documents, AFolderIsReadInOrderOfNamesWithoutHiddenFiles) {
  const std::string folder = EmptyFolder();
  WriteText(folder + "/b.md", "second");
  WriteText(folder + "/a/z", "first");
  WriteText(folder + "/c.txt", "third");
  WriteText(folder + "/.hidden", "no");
  WriteText(folder + "/.git/config", "no");
  WriteText(folder + "/d/e.jsonl", "{\"text\": \"fourth\"}\n{\"text\": \"fifth\", \"id\": 5}");
  EXPECT_THAT(ReadAll(folder), ElementsAre("first", "second", "third", "fourth", "fifth"));
  const absl::StatusOr<DocumentCounts> counts = CheckDocuments(folder);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->documents, 5);
  EXPECT_EQ(counts->bytes, 5 + 6 + 5 + 6 + 5);
}

TEST(Documents, JsonLinesMayHaveBlankLinesAndAnyLineEnds) {
  const std::string path = WriteText(EmptyFolder() + "/a.jsonl",
                                     "\n{\"text\":\"a\\nb\"}\r\n\n  \n{\"text\":\"\"}\n"
                                     "{\"meta\":{\"x\":[1]},\"text\":\"\\u20ac\"}");
  EXPECT_THAT(ReadAll(path), ElementsAre("a\nb", "€"));
}

TEST(Documents, EmptyFilesAndByteOrderMarksAreLeftOut) {
  const std::string folder = EmptyFolder();
  WriteText(folder + "/a.txt", "");
  WriteText(folder + "/b.txt", "\xef\xbb\xbfwith a mark");
  WriteText(folder + "/c.txt", "\xef\xbb\xbf");
  WriteText(folder + "/d.jsonl", "\xef\xbb\xbf{\"text\": \"x\"}\n");
  EXPECT_THAT(ReadAll(folder), ElementsAre("with a mark", "x"));
}

TEST(Documents, LongTextsComeInPiecesThatCutNoCharacterOrWord) {
  const std::string folder = EmptyFolder();
  std::string words, characters = "x", json = "{\"text\":\"";
  while (words.size() < 2'500'000) words += "wörter und ";
  while (characters.size() < 2'500'000) characters += "€";
  WriteText(folder + "/a.txt", words);
  WriteText(folder + "/b.txt", characters);
  WriteText(folder + "/c.jsonl", json + words + "\"}\n{\"text\":\"end\"}\n");
  EXPECT_THAT(ReadAll(folder), ElementsAre(words, characters, words, "end"));

  DocumentReader reader(*ListDocumentFiles(folder + "/a.txt"));
  DocumentReader::Piece piece;
  ASSERT_TRUE(*reader.Next(&piece));
  EXPECT_TRUE(absl::EndsWith(piece.text, " "));
  EXPECT_FALSE(piece.ends_document);
}

TEST(Documents, ATextOfExactlyOnePieceIsOnePiece) {
  const std::string text(size_t{1} << 20, 'a');
  const std::string path = WriteText(EmptyFolder() + "/a.txt", text);
  DocumentReader reader(*ListDocumentFiles(path));
  DocumentReader::Piece piece;
  ASSERT_TRUE(*reader.Next(&piece));
  EXPECT_EQ(piece.text, text);
  EXPECT_TRUE(piece.ends_document);
  EXPECT_EQ(reader.bytes_read(), 1 << 20);
  EXPECT_FALSE(*reader.Next(&piece));
}

TEST(CheckDocuments, NothingThere) {
  EXPECT_TRUE(absl::IsNotFound(CheckDocuments(EmptyFolder() + "/none").status()));
  EXPECT_THAT(ErrorOf(EmptyFolder()), HasSubstr("holds no files"));
}

TEST(CheckDocuments, EmptyFiles) {
  const std::string folder = EmptyFolder();
  EXPECT_THAT(ErrorOf(WriteText(folder + "/a.txt", "")), HasSubstr("a.txt: is empty"));
  WriteText(folder + "/b.txt", "");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("all 2 files are empty"));
}

TEST(CheckDocuments, BinaryContentIsNamedByFileAndByte) {
  const std::string folder = EmptyFolder();
  WriteText(folder + "/good.txt", "text");
  WriteText(folder + "/sub/picture", std::string("PNG\0\0", 5));
  EXPECT_EQ(ErrorOf(folder),
            "sub/picture: is binary, not text: it has a NUL byte at byte 3; convert it or leave "
            "it out");
  WriteText(folder + "/sub/picture", "caf\xe9");
  EXPECT_EQ(ErrorOf(folder),
            "sub/picture: is not UTF-8 text: it has byte 0xe9 at byte 3; convert it or leave it "
            "out");
  const std::string late = std::string(3'000'000, 'a') + "\xff" + std::string(3'000'000, 'a');
  WriteText(folder + "/sub/picture", late);
  EXPECT_THAT(ErrorOf(folder), HasSubstr("at byte 3000000;"));
}

TEST(CheckDocuments, BadJsonLinesAreNamedByFileAndLine) {
  struct Case {
    const char* line;
    const char* message;
  };
  const Case cases[] = {
      {"{\"text\": ", "a.jsonl:3: is not valid JSON at column 10"},
      {"plain", "a.jsonl:3: is not valid JSON"},
      {"{\"text\": \"a\"} {}", "a.jsonl:3: is not valid JSON"},
      {"{\"text\": \"\xff\"}", "a.jsonl:3: is not valid JSON"},
      {"{\"text\": \"\\ud800\"}", "a.jsonl:3: is not valid JSON"},
      {"[\"text\"]", "a.jsonl:3: is JSON but no object (array)"},
      {"\"text\"", "a.jsonl:3: is JSON but no object (string)"},
      {"{\"txt\": \"a\"}", "a.jsonl:3: has no field \"text\""},
      {"{\"text\": 5}", "a.jsonl:3: \"text\" is not a string (number)"},
      {"{\"text\": null}", "a.jsonl:3: \"text\" is not a string (null)"},
      {"{\"text\": \"a\\u0000b\"}", "a.jsonl:3: \"text\" is binary, not text"},
  };
  const std::string folder = EmptyFolder();
  for (const Case& c : cases) {
    WriteText(folder + "/a.jsonl",
              std::string("{\"text\": \"good\"}\n\n") + c.line + "\n{\"text\": \"good\"}\n");
    EXPECT_THAT(ErrorOf(folder), HasSubstr(c.message));
  }
}

TEST(CheckDocuments, EndlessLinesAreRefused) {
  std::string line = "{\"text\":\"";
  while (line.size() < 70'000'000) line += "a line without an end ";
  EXPECT_THAT(ErrorOf(WriteText(EmptyFolder() + "/a.jsonl", line)),
              HasSubstr("a.jsonl:1: is longer than 64 MiB"));
}

}  // namespace
}  // namespace millrace
