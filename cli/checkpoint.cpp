#include <cstdio>

#include <fmt/format.h>

#include "arete/io/checkpoint.h"
#include "arete/io/dtype_code.h"
#include "cli/commands.h"

namespace arete::cli {

int checkpoint_info(const CheckpointOptions& o) {
  const io::Checkpoint c(o.source);
  uint64_t bytes = 0;
  size_t pieces = 0;
  for (const auto& [name, t] : c.tensors()) {
    uint64_t own = io::dtype_code_size(t.dtype);
    for (const int64_t n : t.shape) own *= uint64_t(n);
    bytes += own;
    pieces += t.pieces.size();
    fmt::print("{:<60} {:<8} {:<20} {} piece{}\n", name, t.dtype, to_string(t.shape),
               t.pieces.size(), t.pieces.size() == 1 ? "" : "s");
  }
  fmt::print("{} tensors in {} pieces and {} files, {:.3f} GB\n", c.tensors().size(), pieces,
             c.files().size(), double(bytes) / 1e9);
  if (o.verify) {
    c.verify();
    fmt::print("all bytes are those that were written\n");
  }
  return 0;
}

int checkpoint_merge(const CheckpointOptions& o) {
  const int64_t n =
      io::merge_checkpoint(o.source, o.out, o.prefix, uint64_t(o.most_gigabytes * 1e9));
  fmt::print("{} tensors written to {}\n", n, o.out);
  return 0;
}

int checkpoint_split(const CheckpointOptions& o) {
  const int64_t n = io::split_checkpoint(o.source, o.out, o.prefix, o.pieces);
  fmt::print("{} tensors written to {}\n", n, o.out);
  return 0;
}

}  // namespace arete::cli
