// Aligned columns.
#ifndef MILLRACE_CLIENT_CLI_TABLE_H_
#define MILLRACE_CLIENT_CLI_TABLE_H_

#include <string>
#include <vector>

#include "client/cli/terminal.h"

namespace millrace {

class Table {
 public:
  enum Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column. Cells are made safe to show.
  void AddRow(std::vector<std::string> cells);

  // The title row and the rows, two spaces between columns, no spaces at the end of a line. On a
  // terminal lines are cut at its width.
  std::string Format(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Lines of `name  value`, values aligned. Lines of an empty value are left out.
class Fields {
 public:
  void Add(const std::string& name, const std::string& value);
  std::string Format(const Terminal& terminal) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_TABLE_H_
