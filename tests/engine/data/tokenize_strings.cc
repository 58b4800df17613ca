// Tokenizes strings for tests/golden/compare_tokenizers.py.
//
//   tokenize_strings TOKENIZER < STRINGS > TOKENS    each string and its tokens as u32 count, then
//   bytes
//                                                    or i32 tokens; behind the tokens, the decoded
//                                                    text
//   tokenize_strings TOKENIZER TEXT_FILE             megabytes a second on one thread
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/train/model_tokenizer.h"

namespace {

void Write(const void* data, size_t count, size_t size) {
  const auto length = static_cast<uint32_t>(count);
  std::cout.write(reinterpret_cast<const char*>(&length), sizeof(length));
  std::cout.write(static_cast<const char*>(data), static_cast<std::streamsize>(count * size));
}

void Measure(const millrace::Tokenizer& tokenizer, const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr size_t kPiece = size_t{1} << 20;
  size_t count = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (size_t at = 0; at < text.size(); at += kPiece) {
    std::vector<int32_t> tokens;
    tokenizer.Encode(absl::string_view(text).substr(at, kPiece), &tokens);
    count += tokens.size();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%.2f MB/s, %.2f bytes a token\n",
              static_cast<double>(text.size()) / 1e6 / seconds.count(),
              static_cast<double>(text.size()) / static_cast<double>(count));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto tokenizer = millrace::LoadModelTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  if (argc > 2) {
    Measure(**tokenizer, argv[2]);
    return 0;
  }
  std::ios::sync_with_stdio(false);
  uint32_t length = 0;
  std::string text;
  std::vector<int32_t> tokens;
  while (std::cin.read(reinterpret_cast<char*>(&length), sizeof(length))) {
    text.resize(length);
    std::cin.read(text.data(), length);
    tokens.clear();
    (*tokenizer)->Encode(text, &tokens);
    Write(tokens.data(), tokens.size(), sizeof(int32_t));
    const std::string decoded = (*tokenizer)->Decode(tokens);
    Write(decoded.data(), decoded.size(), 1);
  }
}
