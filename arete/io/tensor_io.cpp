#include "arete/io/tensor_io.h"

#include <cstring>

#include "arete/base/file.h"
#include "arete/core/modes.h"
#include "arete/io/dtype_code.h"
#include "arete/io/npy_format.h"
#include "arete/io/safetensors_format.h"
#include "arete/io/zip.h"
#include "arete/ops/creation.h"

namespace arete::io {

namespace {

struct CodeOf {
  std::string_view code;
  DType dtype;
};
constexpr CodeOf kCodes[] = {
    {"BOOL", kBool},     {"U8", kUInt8},           {"I8", kInt8},
    {"I16", kInt16},     {"I32", kInt32},          {"I64", kInt64},
    {"U16", kUInt16},    {"U32", kUInt32},         {"U64", kUInt64},
    {"F16", kFloat16},   {"BF16", kBFloat16},      {"F32", kFloat32},
    {"F64", kFloat64},   {"F8_E4M3", kFloat8E4M3}, {"F8_E5M2", kFloat8E5M2},
    {"C64", kComplex64}, {"C128", kComplex128}};
}  // namespace

std::string code_of(DType t) {
  for (const CodeOf& c : kCodes)
    if (c.dtype == t) return std::string(c.code);
  ARETE_BUG("a dtype without a file code");
}

DType dtype_of_code(std::string_view code, const std::string& what) {
  for (const CodeOf& c : kCodes)
    if (c.code == code) return c.dtype;
  throw TypeError("load", what + " has a dtype that Arete does not have").got(code);
}

namespace {

Tensor host_copy(const Tensor& t, const std::string& name) {
  ARETE_CHECK(t.defined(), ValueError("save", "tensor '" + name + "' is undefined"));
  const NoGradGuard no_grad;
  return t.detach().to(kCPU).contiguous();
}

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.data_ptr()), t.nbytes()};
}

Tensor tensor_from(std::span<const std::byte> bytes, std::span<const int64_t> shape, DType dtype) {
  Tensor t = empty(shape, dtype);
  if (!bytes.empty()) std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
  if (dtype == kBool) {
    // Any other byte than 0 and 1 would be undefined as a bool.
    auto* p = static_cast<uint8_t*>(t.data_ptr());
    for (int64_t i = 0; i < t.numel(); ++i) p[i] = p[i] != 0;
  }
  return t;
}

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  const NpyHeader h = parse_npy_header(bytes, name);
  const DType dtype = dtype_of_code(h.dtype, "array '" + name + "'");
  const auto data = bytes.subspan(size_t(h.data_offset), size_t(h.data_bytes));
  if (!h.fortran_order) return tensor_from(data, h.shape, dtype);
  // Column-major is the row-major array of the reversed shape, transposed.
  Shape reversed, order;
  for (size_t d = h.shape.size(); d-- > 0;) {
    reversed.push_back(h.shape[d]);
    order.push_back(int64_t(d));
  }
  return tensor_from(data, reversed, dtype).permute(order).contiguous();
}

std::string npy_header(const Tensor& t, const std::string& name) {
  ARETE_CHECK(t.dtype() != kBFloat16 && !is_float8(t.dtype()),
              TypeError("save_npy", "NumPy has no dtype for tensor '" + name + "'")
                  .got(std::string(name_of(t.dtype())))
                  .hint("convert it to float32, or use safetensors"));
  return write_npy_header(code_of(t.dtype()), t.sizes());
}

}  // namespace

SafetensorsImage::SafetensorsImage(const NamedTensors& tensors,
                                   const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, t] : tensors) {
    Tensor host = host_copy(t, name);
    TensorEntry e;
    e.name = name;
    e.dtype = code_of(host.dtype());
    e.shape.assign(host.sizes().begin(), host.sizes().end());
    entries.push_back(std::move(e));
    by_name[name] = std::move(host);
  }
  header_ = write_safetensors_header(entries, metadata);
  for (const TensorEntry& e : entries) tensors_.push_back(by_name.at(e.name));
}

std::vector<std::span<const std::byte>> SafetensorsImage::parts() const {
  std::vector<std::span<const std::byte>> all{std::as_bytes(std::span(header_))};
  for (const Tensor& t : tensors_) all.push_back(bytes_of(t));
  return all;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const SafetensorsImage image(tensors, metadata);
  AtomicFile file(path);
  for (const auto part : image.parts()) file.write(part);
  file.commit();
}

namespace {

// `check` is called before bytes are read.
template <class Check>
SafetensorsFile read_all(std::span<const std::byte> bytes, const std::string& file_name,
                         const Check& check) {
  const SafetensorsHeader h = parse_safetensors_header(bytes, file_name);
  SafetensorsFile result;
  result.metadata = h.metadata;
  for (const TensorEntry& e : h.entries) {
    check();
    const DType dtype = dtype_of_code(e.dtype, "tensor '" + e.name + "' of " + file_name);
    result.tensors[e.name] = tensor_from(
        bytes.subspan(size_t(h.data_offset + e.begin), size_t(e.end - e.begin)), e.shape, dtype);
  }
  return result;
}

}  // namespace

SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file_name) {
  return read_all(bytes, file_name, [] {});
}

SafetensorsFile load_safetensors(const std::string& path) {
  const MappedFile file(path);
  return read_all(file.bytes(), path, [&] { file.check_not_truncated(); });
}

void save_npy(const std::string& path, const Tensor& t) {
  const Tensor host = host_copy(t, path);
  const std::string header = npy_header(host, path);
  AtomicFile file(path);
  file.write(header);
  file.write(bytes_of(host));
  file.commit();
}

Tensor load_npy(const std::string& path) {
  const MappedFile file(path);
  return parse_npy(file.bytes(), path);
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  AtomicFile file(path);
  ZipWriter zip(file);
  for (const auto& [name, t] : tensors) {
    const Tensor host = host_copy(t, name);
    const std::string header = npy_header(host, name);
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(header)), bytes_of(host)};
    zip.add(name + ".npy", parts);
  }
  zip.finish();
  file.commit();
}

std::map<std::string, Tensor> load_npz(const std::string& path) {
  const MappedFile file(path);
  const ZipReader zip(file.bytes(), path);
  std::map<std::string, Tensor> result;
  for (const ZipEntry& e : zip.entries()) {
    std::string name = e.name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    ARETE_CHECK(!result.contains(name),
                IoError("load_npz", path + ": two arrays are called '" + name + "'"));
    result[name] = e.deflated ? parse_npy(zip.read(e), e.name) : parse_npy(zip.view(e), e.name);
  }
  return result;
}

}  // namespace arete::io
