#include "arete/backend/cuda/runtime/allocator_report.h"

#include <algorithm>
#include <cstdio>

namespace arete::cuda {
namespace {

constexpr size_t kGiB = size_t(1) << 30;

std::string count_of(int64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// What neither this allocator nor anybody else's free memory explains.
size_t held_by_others(const MemoryReport& r) {
  const size_t known = r.device_free + r.stats.reserved + r.reserved_beside;
  return r.device_total > known ? r.device_total - known : 0;
}

std::string what_is_held(const MemoryReport& r) {
  std::string s = "this process holds " + format_bytes(r.stats.reserved) + ": " +
                  format_bytes(r.stats.allocated) + " in " +
                  count_of(r.stats.blocks, "live block") + ", " + format_bytes(r.cached()) +
                  " cached";
  if (r.stats.pending)
    s += ", " + format_bytes(r.stats.pending) + " freed but still used on other streams";
  return s;
}

std::string remedies(const MemoryReport& r, size_t requested) {
  std::vector<std::string> list;
  const bool possible = requested <= std::min(r.device_total, r.limit);
  if (possible && r.stats.allocated)
    list.push_back(
        "drop references to tensors that are not needed, and compute what needs no gradients under "
        "no_grad");
  list.push_back(possible ? "use a smaller batch"
                          : "ask for less at once (this request alone is more than there is), with "
                            "a smaller batch or tensors split over devices");
  list.push_back("checkpoint activations, so that the backward pass computes them again");
  list.push_back("use bfloat16 (autocast)");
  // What can be given back has been by now, unless a capture forbade it.
  if (const size_t cached = r.cached(); cached > r.stats.reserved / 10) {
    if (r.capturing)
      list.push_back("call empty_cache() before the capture begins: " + format_bytes(cached) +
                     " are cached, and a capture cannot give them back");
    else if (r.private_cached > cached / 2)
      list.push_back("destroy CUDA graphs that are not replayed any more: their pools keep " +
                     format_bytes(r.private_cached));
    else
      list.push_back("call empty_cache() between phases of the program: " + format_bytes(cached) +
                     " are cached between live blocks" +
                     (r.plain_segments ? "; unset ARETE_CUDA_ALLOCATOR, since expandable segments "
                                         "give such memory back"
                                       : ""));
  }
  if (r.limit < r.device_total)
    list.push_back("raise the limit of " + format_bytes(r.limit) + " made by set_memory_fraction");
  if (const size_t others = held_by_others(r); others > std::max(kGiB, r.device_total / 16))
    list.push_back("see with nvidia-smi who else uses the device: " + format_bytes(others) +
                   " are held by other processes or libraries");
  std::string s;
  for (size_t i = 0; i < list.size(); ++i)
    s += (i ? "; (" : "(") + std::to_string(i + 1) + ") " + list[i];
  return s;
}

void add_line(std::string& s, const char* label, const std::string& value) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-34s %14s\n", label, value.c_str());
  s += line;
}

}  // namespace

std::string format_bytes(size_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = double(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, kUnits[unit]);
  return text;
}

std::string format_summary(const MemoryReport& r) {
  std::string s = "CUDA memory of " + r.device + "\n";
  const prim::MemoryStats& m = r.stats;
  add_line(s, "allocated", format_bytes(m.allocated));
  add_line(s, "allocated, peak", format_bytes(m.peak_allocated));
  add_line(s, "reserved", format_bytes(m.reserved));
  add_line(s, "reserved, peak", format_bytes(m.peak_reserved));
  add_line(s, "cached", format_bytes(r.cached()));
  add_line(s, "cached in private pools", format_bytes(r.private_cached));
  add_line(s, "freed, but used on other streams", format_bytes(m.pending));
  add_line(s, "most that may be reserved", format_bytes(r.limit));
  add_line(s, "device: free", format_bytes(r.device_free));
  add_line(s, "device: held by others", format_bytes(held_by_others(r)));
  add_line(s, "device: total", format_bytes(r.device_total));
  add_line(s, "live blocks", std::to_string(m.blocks));
  add_line(s, "live blocks, peak", std::to_string(m.peak_blocks));
  add_line(s, r.plain_segments ? "segments (plain)" : "segments (expandable)",
           std::to_string(m.segments));
  add_line(s, "allocations", std::to_string(m.allocations));
  add_line(s, "frees", std::to_string(m.frees));
  add_line(s, "gatherings of cached memory", std::to_string(r.moves));
  add_line(s, "retries after emptying the cache", std::to_string(m.retries));
  add_line(s, "out-of-memory errors", std::to_string(m.out_of_memory));
  char line[256];
  std::snprintf(line, sizeof line, "%-24s %12s %10s %12s %12s %12s\n", "pool", "allocated",
                "blocks", "pending", "cached", "largest free");
  s += line;
  for (const MemoryReport::Pool& p : r.pools) {
    std::snprintf(line, sizeof line, "%-24s %12s %10lld %12s %12s %12s\n", p.name.c_str(),
                  format_bytes(p.allocated).c_str(), static_cast<long long>(p.blocks),
                  format_bytes(p.pending).c_str(), format_bytes(p.cached).c_str(),
                  format_bytes(p.largest_free).c_str());
    s += line;
  }
  std::snprintf(line, sizeof line, "%-24s %12s %10s\n", "allocated by operator", "bytes", "blocks");
  s += line;
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(kShown, r.holders.size()); ++i) {
    const MemoryReport::Holder& h = r.holders[i];
    std::snprintf(line, sizeof line, "%-24s %12s %10lld\n", h.operator_name.c_str(),
                  format_bytes(h.bytes).c_str(), static_cast<long long>(h.blocks));
    s += line;
  }
  return s;
}

OutOfMemoryError out_of_memory_error(const MemoryReport& r, size_t requested) {
  std::string text = "CUDA out of memory. Tried to allocate " + format_bytes(requested) + ". " +
                     r.device + " has " + format_bytes(r.device_total) + ", of which " +
                     format_bytes(r.device_free) + " are free; " + what_is_held(r);
  if (r.limit < r.device_total) text += "; set_memory_fraction allows it " + format_bytes(r.limit);
  text += ".";
  if (!r.holders.empty()) {
    text += " Largest holders by operator: ";
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < std::min(kShown, r.holders.size()); ++i) {
      const MemoryReport::Holder& h = r.holders[i];
      text += (i ? ", " : "") + h.operator_name + " " + format_bytes(h.bytes) + " (" +
              count_of(h.blocks, "block") + ")";
    }
    text += ".";
  }
  OutOfMemoryError error("", text);
  error.hint(remedies(r, requested));
  return error;
}

}  // namespace arete::cuda
