#include "client/cli/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace millrace {

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = Sanitize(cell, /*keep_lines=*/false);
  rows_.push_back(std::move(cells));
}

std::string Table::Format(const Terminal& terminal) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = DisplayColumns(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, DisplayColumns(row[c]));
    widths.push_back(width);
  }
  auto line = [&](auto cell_of) {
    std::string text;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      std::string padding(widths[c] - DisplayColumns(cell), ' ');
      absl::StrAppend(
          &text, c == 0 ? "" : "  ",
          columns_[c].align == kRight ? absl::StrCat(padding, cell) : absl::StrCat(cell, padding));
    }
    absl::StripTrailingAsciiWhitespace(&text);
    return terminal.interactive ? Ellipsize(text, static_cast<size_t>(terminal.columns)) : text;
  };
  std::string text = absl::StrCat(
      Styled(terminal, Style::kBold, line([&](size_t c) { return columns_[c].title; })), "\n");
  for (const auto& row : rows_) {
    absl::StrAppend(&text, line([&](size_t c) { return row[c]; }), "\n");
  }
  return text;
}

void Fields::Add(const std::string& name, const std::string& value) {
  if (!value.empty()) fields_.emplace_back(name, Sanitize(value, /*keep_lines=*/false));
}

std::string Fields::Format(const Terminal& terminal) const {
  size_t width = 0;
  for (const auto& [name, value] : fields_) width = std::max(width, DisplayColumns(name));
  std::string text;
  for (const auto& [name, value] : fields_) {
    absl::StrAppend(&text, Styled(terminal, Style::kBold, name),
                    std::string(width - DisplayColumns(name) + 2, ' '), value, "\n");
  }
  return text;
}

}  // namespace millrace
