// Tensor::to_string: the rules by which PyTorch users know their numbers. Elements are aligned in
// columns; one format is chosen for all of them, from those that will be shown.
#include "arete/core/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "arete/core/complex.h"
#include "arete/core/history.h"
#include "arete/core/host_access.h"

namespace arete {
namespace {

constexpr std::string_view kPrefix = "tensor(";

// The elements that are shown, row-major, as doubles (floats), integers (the rest) or pairs.
struct Shown {
  PrintOptions options;
  Shape sizes;               // of what is shown
  std::vector<bool> elided;  // per dimension: "..." stands after the first edge_items
  std::vector<double> real, imag;
  std::vector<int64_t> whole;
};

std::string pad_left(std::string s, size_t width) {
  return s.size() >= width ? s : std::string(width - s.size(), ' ') + s;
}

// The one format of all floating numbers of a tensor.
class FloatFormat {
 public:
  FloatFormat(const std::vector<double>& values, const PrintOptions& options)
      : precision_(options.precision) {
    double least = INFINITY, most = 0;
    for (double v : values) {
      if (!std::isfinite(v) || v == 0) continue;
      least = std::min(least, std::abs(v));
      most = std::max(most, std::abs(v));
      whole_ = whole_ && v == std::ceil(v);
    }
    if (most == 0) return;
    const bool wide = most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4;
    scientific_ = options.scientific.value_or(wide);
    for (double v : values)
      if (std::isfinite(v) && v != 0) width_ = std::max(width_, text(v).size());
  }
  size_t width() const { return width_; }
  std::string operator()(double v) const { return pad_left(text(v), width_); }

 private:
  std::string text(double v) const {
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
    if (scientific_) return fmt::format("{:.{}e}", v, precision_);
    return whole_ ? fmt::format("{:.0f}.", v) : fmt::format("{:.{}f}", v, precision_);
  }
  int precision_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

// Text of element i of what is shown, all of one width.
class Elements {
 public:
  Elements(const Shown& shown, DType dtype)
      : shown_(shown),
        dtype_(dtype),
        real_(shown.real, shown.options),
        imag_(shown.imag, shown.options) {
    for (int64_t v : shown.whole) integer_width_ = std::max(integer_width_, text_of(v).size());
    if (is_complex(dtype))
      width_ = real_.width() + imag_.width() + 1;
    else
      width_ = is_floating(dtype) ? real_.width() : integer_width_;
  }
  size_t width() const { return width_; }
  std::string operator()(size_t i) const {
    if (is_floating(dtype_)) return real_(shown_.real[i]);
    if (!is_complex(dtype_)) return pad_left(text_of(shown_.whole[i]), integer_width_);
    std::string imaginary = imag_(shown_.imag[i]) + "j";
    imaginary.erase(0, imaginary.find_first_not_of(' '));
    return real_(shown_.real[i]) + (imaginary[0] == '-' ? "" : "+") + imaginary;
  }

 private:
  std::string text_of(int64_t v) const {
    if (dtype_ == kBool) return v ? "True" : "False";
    return dtype_ == kUInt64 ? std::to_string(uint64_t(v)) : std::to_string(v);
  }
  const Shown& shown_;
  DType dtype_;
  FloatFormat real_, imag_;
  size_t integer_width_ = 1, width_;
};

void store_piece(Shown& shown, DType dtype, const std::byte* data, size_t from, size_t to) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T& v = reinterpret_cast<const T*>(data)[from];
    if constexpr (std::is_same_v<T, std::complex<float>> ||
                  std::is_same_v<T, std::complex<double>>) {
      shown.real[to] = double(v.real());
      shown.imag[to] = double(v.imag());
    } else if constexpr (std::is_integral_v<T>) {
      shown.whole[to] = int64_t(v);
    } else if constexpr (std::is_same_v<T, double>) {
      shown.real[to] = v;
    } else {
      shown.real[to] = double(float(v));
    }
  });
}

// Reads what will be shown and nothing else: of a summarised tensor, the corners.
Shown read_shown(const Tensor& t, const PrintOptions& options) {
  const int rank = int(t.dim());
  Shown shown;
  shown.options = options;
  const bool summarise = t.numel() > options.threshold;
  const int64_t edge = options.edge_items;
  uint32_t pieces = 1;
  for (int64_t size : t.sizes()) {
    const bool cut = summarise && (size - 1) / 2 >= edge;
    shown.elided.push_back(cut);
    shown.sizes.push_back(cut ? 2 * edge : size);
    if (cut) pieces *= 2;
  }
  const size_t n = size_t(numel_of(shown.sizes));
  const DType dtype = t.dtype();
  if (is_floating(dtype) || is_complex(dtype)) shown.real.resize(n);
  if (is_complex(dtype)) shown.imag.resize(n);
  if (is_integral_or_bool(dtype)) shown.whole.resize(n);

  const Shape strides = contiguous_strides(shown.sizes);
  std::vector<std::byte> host;
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    Layout from = t.layout();
    size_t first = 0;
    uint32_t bits = piece;
    for (int d = 0; d < rank; ++d) {
      if (!shown.elided[d]) continue;
      const bool upper = bits & 1;
      bits >>= 1;
      from = narrow(from, d, upper ? from.sizes[d] - edge : 0, edge);
      if (upper) first += size_t(edge * strides[d]);
    }
    const size_t count = size_t(from.numel());
    host.resize(count * size_of(dtype));
    read_to_host(t, from, host.data());
    Shape index(size_t(rank), 0);
    for (size_t i = 0; i < count; ++i) {
      size_t to = first;
      for (int d = 0; d < rank; ++d) to += size_t(index[d] * strides[d]);
      store_piece(shown, dtype, host.data(), i, to);
      for (int d = rank - 1; d >= 0; --d) {
        if (++index[d] < from.sizes[d]) break;
        index[d] = 0;
      }
    }
  }
  return shown;
}

std::string row_text(const Shown& shown, const Elements& text, size_t first, size_t indent) {
  const size_t n = size_t(shown.sizes.back());
  const size_t columns = size_t(shown.options.line_width);
  const size_t room = indent < columns ? columns - indent : 0;
  const size_t per_line = std::max<size_t>(room / (text.width() + 2), 1);
  std::vector<std::string> cells;
  for (size_t i = 0; i < n; ++i) {
    if (shown.elided.back() && int64_t(i) == shown.options.edge_items) cells.push_back(" ...");
    cells.push_back(text(first + i));
  }
  std::string s = "[";
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i) s += i % per_line ? ", " : ",\n" + std::string(indent + 1, ' ');
    s += cells[i];
  }
  return s + "]";
}

std::string block_text(const Shown& shown, const Elements& text, int dim, size_t first,
                       size_t indent) {
  const int rank = int(shown.sizes.size());
  if (rank == 0) return text(first);
  if (dim == rank - 1) return row_text(shown, text, first, indent);
  size_t stride = 1;
  for (int d = dim + 1; d < rank; ++d) stride *= size_t(shown.sizes[d]);
  const std::string between =
      "," + std::string(size_t(rank - 1 - dim), '\n') + std::string(indent + 1, ' ');
  std::string s = "[";
  for (size_t i = 0; i < size_t(shown.sizes[dim]); ++i) {
    if (i) s += between;
    if (shown.elided[dim] && int64_t(i) == shown.options.edge_items) s += "..." + between;
    s += block_text(shown, text, dim + 1, first + i * stride, indent + 1);
  }
  return s + "]";
}

std::string values_text(const Tensor& t, size_t indent, const PrintOptions& options) {
  if (t.is_meta()) return "...";
  if (t.numel() == 0) return "[]";
  const Shown shown = read_shown(t, options);
  return block_text(shown, Elements(shown, t.dtype()), 0, 0, indent);
}

// As a Python tuple: "(2, 3)", "(2,)", "()".
std::string tuple_text(IntList sizes) {
  std::string s = to_string(sizes);
  s.front() = '(';
  s.back() = ')';
  if (sizes.size() == 1) s.insert(s.size() - 1, ",");
  return s;
}

std::mutex g_options_mutex;
PrintOptions g_options;

}  // namespace

std::string values_to_string(const Tensor& t, int indent) {
  return values_text(t, size_t(indent), print_options());
}

PrintOptions print_options() {
  const std::lock_guard lock(g_options_mutex);
  return g_options;
}

void set_print_options(const PrintOptions& options) {
  const auto at_least = [](const char* name, int64_t value, int64_t least) {
    ARETE_CHECK(value >= least, ValueError("set_printoptions", "the value is too small")
                                    .argument(name)
                                    .expected(fmt::format("at least {}", least))
                                    .got(std::to_string(value)));
  };
  at_least("precision", options.precision, 0);
  at_least("threshold", options.threshold, 0);
  at_least("edgeitems", options.edge_items, 1);
  at_least("linewidth", options.line_width, 1);
  const std::lock_guard lock(g_options_mutex);
  g_options = options;
}

constinit std::atomic<Tensor (*)(const Tensor&)> detail::tangent_for_text{nullptr};

std::string Tensor::to_string() const {
  if (!defined()) return "tensor(undefined)";
  const PrintOptions options = print_options();
  const DType floating = default_dtype();
  const bool complex_default = dtype() == (floating == kFloat64 ? kComplex128 : kComplex64);
  bool show_dtype = dtype() != floating;
  std::vector<std::string> suffixes;
  if (!device().is_cpu()) suffixes.push_back("device='" + device().to_string() + "'");
  if (is_meta()) {
    suffixes.push_back("size=" + tuple_text(sizes()));
  } else if (numel() == 0) {
    if (dim() != 1) suffixes.push_back("size=" + tuple_text(sizes()));
  } else {
    // Values of these show what they are.
    show_dtype = show_dtype && dtype() != kInt64 && dtype() != kBool && !complex_default;
  }
  if (show_dtype) suffixes.push_back(fmt::format("dtype={}.{}", options.package, name_of(dtype())));
  if (const IntrusivePtr<Node> node = grad_fn())
    suffixes.push_back("grad_fn=<" + node->name() + ">");
  else if (requires_grad())
    suffixes.push_back("requires_grad=True");
  if (const auto tangent_of = detail::tangent_for_text.load(std::memory_order_acquire)) {
    const Tensor tangent = tangent_of(*this);
    if (tangent.defined()) suffixes.push_back("tangent=" + tangent.to_string());
  }

  std::string s = std::string(kPrefix) + values_text(*this, kPrefix.size(), options);
  const size_t newline = s.rfind('\n');
  size_t line = newline == std::string::npos ? s.size() + 2 : s.size() - newline + 1;
  for (const std::string& suffix : suffixes) {
    if (line + suffix.size() + 2 > size_t(options.line_width)) {
      s += ",\n" + std::string(kPrefix.size(), ' ') + suffix;
      line = kPrefix.size() + suffix.size();
    } else {
      s += ", " + suffix;
      line += suffix.size() + 2;
    }
  }
  return s + ")";
}

}  // namespace arete
