// Tables of plain text, laid out as PyTorch's profiler does.
#pragma once

#include <string>
#include <vector>

namespace arete::profile {

class TextTable {
 public:
  /// `left`: the text begins at the column's left edge.
  void add_column(std::string title, int width = 12, bool left = false);
  void add_row(std::vector<std::string> cells);
  /// Cells that are too long lose their end, which "..." stands for.
  std::string render(const std::string& header = "", const std::string& footer = "") const;

 private:
  struct Column {
    std::string title;
    size_t width;
    bool left;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// The widest of the texts, at most `limit` (no limit if 0).
int width_of(const std::vector<std::string>& texts, int least, int limit);

}  // namespace arete::profile
