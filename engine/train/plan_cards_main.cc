// Prints the document of what each shipped card can train:
//
//   bazel run //engine/train:plan_cards > engine/schedule/CARDS.md

#include <iostream>

#include "engine/train/plan_cards.h"

int main() {
  const absl::StatusOr<std::string> document = millrace::CardsDocument();
  if (!document.ok()) {
    std::cerr << document.status().message() << "\n";
    return 1;
  }
  std::cout << *document;
  return 0;
}
