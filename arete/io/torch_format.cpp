#include "arete/io/torch_format.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "arete/base/error.h"
#include "arete/io/checked.h"
#include "arete/io/dtype_code.h"
#include "arete/io/pickle.h"
#include "arete/io/zip.h"

namespace arete::io {

namespace {

using Kind = PickleMachine::Kind;
using Value = PickleMachine::Value;

struct CodeName {
  std::string_view name, code;
};
constexpr CodeName kStorageClasses[] = {
    {"FloatStorage", "F32"},     {"DoubleStorage", "F64"},       {"HalfStorage", "F16"},
    {"LongStorage", "I64"},      {"IntStorage", "I32"},          {"ShortStorage", "I16"},
    {"CharStorage", "I8"},       {"ByteStorage", "U8"},          {"BoolStorage", "BOOL"},
    {"BFloat16Storage", "BF16"}, {"ComplexFloatStorage", "C64"}, {"ComplexDoubleStorage", "C128"}};
constexpr CodeName kDTypes[] = {{"float32", "F32"},
                                {"float", "F32"},
                                {"float64", "F64"},
                                {"double", "F64"},
                                {"float16", "F16"},
                                {"half", "F16"},
                                {"int64", "I64"},
                                {"long", "I64"},
                                {"int32", "I32"},
                                {"int", "I32"},
                                {"int16", "I16"},
                                {"short", "I16"},
                                {"int8", "I8"},
                                {"uint8", "U8"},
                                {"bool", "BOOL"},
                                {"bfloat16", "BF16"},
                                {"complex64", "C64"},
                                {"complex128", "C128"},
                                {"float8_e4m3fn", "F8_E4M3"},
                                {"float8_e5m2", "F8_E5M2"},
                                {"uint16", "U16"},
                                {"uint32", "U32"},
                                {"uint64", "U64"}};

// The code of torch.X, X being in the table; nothing for other names.
std::optional<std::string> code_in(std::span<const CodeName> table, std::string_view global) {
  if (!global.starts_with("torch.")) return {};
  global.remove_prefix(6);
  if (global.starts_with("cuda.")) global.remove_prefix(5);
  for (const CodeName& n : table)
    if (n.name == global) return std::string(n.code);
  return {};
}

// What Kind::other stands for; its `integer` is a number in one of the lists.
enum class Other : int64_t { storage = 0, tensor = 1 };
int64_t other(Other kind, size_t number) { return int64_t(number) * 2 + int64_t(kind); }

class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string_view name)
      : file_(file),
        machine_({[this](size_t g, const std::vector<size_t>& a) { return call(g, a); },
                  [this](size_t id) { return persistent(id); },
                  [this](size_t object, size_t state) { build(object, state); }},
                 name) {
    result_.root = file.size() >= 2 && file[0] == std::byte{'P'} && file[1] == std::byte{'K'}
                       ? read_zip(name)
                       : read_legacy();
  }

  TorchFormat result() {
    result_.nodes.reserve(machine_.size());
    for (size_t i = 0; i < machine_.size(); ++i) result_.nodes.push_back(node(machine_[i]));
    return std::move(result_);
  }

 private:
  // One storage as a pickle names it.
  struct Named {
    size_t storage;
    std::string dtype;  // empty: bytes
    uint64_t first;     // element of the storage
  };

  [[noreturn]] void fail(const std::string& what) const { machine_.fail(what); }
  void need(bool condition, const char* what) const {
    if (!condition) fail(what);
  }

  // ---- the two containers

  size_t read_zip(std::string_view name) {
    const ZipReader zip(file_, name);
    zip_ = &zip;
    const ZipEntry* data = nullptr;
    for (const ZipEntry& e : zip.entries())
      if (e.name == "data.pkl" || e.name.ends_with("/data.pkl")) {
        need(!data, "there are two pickles");
        data = &e;
      }
    if (!data) fail("there is no data.pkl in the archive: it is no file of torch.save");
    prefix_ = data->name.substr(0, data->name.size() - 8);
    if (const ZipEntry* order = zip.find(prefix_ + "byteorder")) {
      need(order->size <= 16, "its byte order is unknown");
      const std::vector<std::byte> text = zip.read(*order);
      need(std::string_view(reinterpret_cast<const char*>(text.data()), text.size()) == "little",
           "its numbers have the other byte order");
    }
    const std::vector<std::byte> pickle = zip.read(*data);
    const size_t root = machine_.run(pickle);
    zip_ = nullptr;
    return root;
  }

  size_t read_legacy() {
    std::span<const std::byte> rest = file_;
    const auto next = [&] {
      size_t used = 0;
      const size_t v = machine_.run(rest, &used);
      rest = rest.subspan(used);
      return v;
    };
    // 0x1950a86a20f9469cfc6c, an integer of ten bytes.
    static constexpr unsigned char kMagic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                               0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    const auto head = file_.first(std::min<size_t>(file_.size(), 16));
    need(std::search(head.begin(), head.end(), std::begin(kMagic), std::end(kMagic),
                     [](std::byte a, unsigned char b) { return uint8_t(a) == b; }) != head.end(),
         "it is neither a zip archive nor an older file of torch.save");
    next();
    const size_t protocol = next();
    need(machine_[protocol].kind == Kind::integer && machine_[protocol].integer == 1001,
         "its protocol is unknown");
    const Value& system = machine_[next()];
    need(system.kind == Kind::dict, "it says nothing of the machine that wrote it");
    for (size_t i = 0; i + 1 < system.items.size(); i += 2)
      if (machine_[system.items[i]].text == "little_endian")
        need(machine_[system.items[i + 1]].integer == 1, "its numbers have the other byte order");
    const size_t root = next();
    const std::vector<size_t> keys = machine_[next()].items;
    const size_t start = file_.size() - rest.size();
    uint64_t at = start;
    for (const size_t k : keys) {
      const std::string& key = machine_[k].text;
      const auto found = by_key_.find(key);
      need(found != by_key_.end() && machine_[k].kind == Kind::text,
           "it has a storage that no tensor names");
      TorchStorage& s = result_.storages[found->second];
      need(s.offset == 0, "it has a storage twice");
      need(file_.size() - at >= 8, "it is truncated");
      const uint64_t count = load_le<uint64_t>(file_.data() + at);
      at += 8;
      // The elements' size is that of the storage's class; `bytes` is what the pickle says.
      need(count <= s.bytes && (s.bytes == 0 || (count > 0 && s.bytes % count == 0)),
           "a storage has another size than the tensors say");
      need(s.bytes <= file_.size() - at, "it is truncated");
      s.offset = at;
      at += s.bytes;
    }
    for (const TorchStorage& s : result_.storages) need(s.offset != 0, "a storage is missing");
    need(at == file_.size(), "there is something behind the last storage");
    return root;
  }

  // ---- what pickles name

  size_t persistent(size_t id) {
    const Value v = machine_[id];
    need(v.kind == Kind::tuple && v.items.size() >= 5 && v.items.size() <= 6, "a bad storage");
    const Value &tag = machine_[v.items[0]], &type = machine_[v.items[1]],
                &key = machine_[v.items[2]], &count = machine_[v.items[4]];
    need(tag.kind == Kind::text && tag.text == "storage" && type.kind == Kind::global &&
             key.kind == Kind::text && count.kind == Kind::integer && count.integer >= 0,
         "a bad storage");
    Named named{0, {}, 0};
    if (type.text != "torch.storage.UntypedStorage" && type.text != "torch.UntypedStorage") {
      const std::optional<std::string> code = code_in(kStorageClasses, type.text);
      if (!code) fail("it has a storage of the class '" + type.text + "'");
      named.dtype = *code;
    }
    const uint64_t size = named.dtype.empty() ? 1 : dtype_code_size(named.dtype);
    uint64_t bytes = 0;
    need(checked_mul(uint64_t(count.integer), size, &bytes) && bytes <= file_.size(),
         "a storage is larger than the file");
    if (v.items.size() == 6 && machine_[v.items[5]].kind == Kind::tuple) {
      // A view of a storage, as very old files have: key, first element and size.
      const std::vector<size_t>& view = machine_[v.items[5]].items;
      need(view.size() == 3 && machine_[view[1]].kind == Kind::integer &&
               machine_[view[1]].integer >= 0,
           "a bad view of a storage");
      named.first = uint64_t(machine_[view[1]].integer);
    }
    named.storage = storage_of(key.text, bytes);
    named_.push_back(std::move(named));
    return machine_.add({Kind::other, other(Other::storage, named_.size() - 1), 0, {}, {}});
  }

  size_t storage_of(const std::string& key, uint64_t bytes) {
    const auto [it, added] = by_key_.try_emplace(key, result_.storages.size());
    if (!added) {
      need(result_.storages[it->second].bytes == bytes, "a storage has two sizes");
      return it->second;
    }
    TorchStorage s{key, 0, bytes};
    if (zip_) {
      const ZipEntry* entry = zip_->find(prefix_ + "data/" + key);
      if (!entry) fail("the storage '" + key.substr(0, 80) + "' is missing");
      need(!entry->deflated, "a storage is compressed, which torch.save never does");
      need(entry->size >= bytes, "a storage is smaller than the tensors say");
      s.offset = entry->data_offset;
    }
    result_.storages.push_back(std::move(s));
    return it->second;
  }

  const Value& argument(const std::vector<size_t>& a, size_t i, Kind kind) {
    need(i < a.size() && machine_[a[i]].kind == kind, "a tensor is described wrongly");
    return machine_[a[i]];
  }
  std::vector<int64_t> numbers(const Value& v) {
    need((v.kind == Kind::tuple || v.kind == Kind::list) && v.items.size() <= kMaxFileDims,
         "a tensor has bad sizes");
    std::vector<int64_t> list;
    for (const size_t i : v.items) {
      need(machine_[i].kind == Kind::integer && machine_[i].integer >= 0, "a tensor has bad sizes");
      list.push_back(machine_[i].integer);
    }
    return list;
  }

  // storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata]
  size_t rebuild(const std::vector<size_t>& a, bool says_dtype) {
    const Value& storage = argument(a, 0, Kind::other);
    need(storage.integer % 2 == int64_t(Other::storage), "a tensor is described wrongly");
    const Named& named = named_[size_t(storage.integer / 2)];
    TorchTensor t;
    t.storage = named.storage;
    t.dtype = named.dtype;
    if (says_dtype) {
      const std::optional<std::string> code = code_in(kDTypes, argument(a, 6, Kind::global).text);
      if (!code) fail("it has tensors of '" + machine_[a[6]].text + "'");
      t.dtype = *code;
    }
    need(!t.dtype.empty(), "a tensor has no dtype");
    t.offset = argument(a, 1, Kind::integer).integer;
    need(a.size() >= 6, "a tensor is described wrongly");
    t.sizes = numbers(machine_[a[2]]);
    t.strides = numbers(machine_[a[3]]);
    t.requires_grad = argument(a, 4, Kind::boolean).integer != 0;
    need(machine_[a[5]].items.empty(), "a tensor has hooks");
    const size_t metadata = says_dtype ? 7 : 6;
    need(a.size() <= metadata || machine_[a[metadata]].items.empty(),
         "a tensor is the conjugate or the negative of what is stored, which is not read");
    check_inside(t, named);
    t.offset += int64_t(named.first);
    result_.tensors.push_back(std::move(t));
    return machine_.add({Kind::other, other(Other::tensor, result_.tensors.size() - 1), 0, {}, {}});
  }

  // All elements lie in the storage.
  void check_inside(const TorchTensor& t, const Named& named) {
    need(t.sizes.size() == t.strides.size() && t.offset >= 0, "a tensor has bad sizes");
    bool ok = false;
    dense_bytes(t.sizes, dtype_code_size(t.dtype), &ok);
    need(ok, "a tensor has bad sizes");
    uint64_t last = 0;
    need(checked_add(uint64_t(t.offset), named.first, &last), "a tensor has a bad offset");
    bool empty = false;
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      empty = empty || t.sizes[d] == 0;
      uint64_t reach = 0;
      need(t.sizes[d] == 0 ||
               (checked_mul(uint64_t(t.sizes[d] - 1), uint64_t(t.strides[d]), &reach) &&
                checked_add(last, reach, &last)),
           "a tensor reaches beyond its storage");
    }
    const uint64_t available = result_.storages[t.storage].bytes / dtype_code_size(t.dtype);
    need(empty ? uint64_t(t.offset) + named.first <= available : last < available,
         "a tensor reaches beyond its storage");
  }

  size_t call(size_t global, const std::vector<size_t>& a) {
    const std::string name = machine_[global].text;
    if (name == "torch._utils._rebuild_tensor_v2") return rebuild(a, false);
    if (name == "torch._utils._rebuild_tensor_v3") return rebuild(a, true);
    if (name == "torch._utils._rebuild_parameter" ||
        name == "torch._utils._rebuild_parameter_with_state") {
      TorchTensor& t = tensor(a.empty() ? machine_.size() : a[0]);
      t.requires_grad = argument(a, 1, Kind::boolean).integer != 0;
      return a[0];
    }
    if (name == "torch._tensor._rebuild_from_type_v2") {  // function, class, arguments, state
      const std::vector<size_t> inner = argument(a, 2, Kind::tuple).items;
      argument(a, 0, Kind::global);
      need(inner.size() <= 16 && machine_[a[0]].text.starts_with("torch._utils._rebuild_"),
           "a tensor is described wrongly");
      return call(a[0], inner);
    }
    if (name == "collections.OrderedDict" || name == "builtins.dict" || name == "__builtin__.dict")
      return dict_of(a);
    if (name == "torch.Size" || is_builtin(name, "tuple") || is_builtin(name, "list"))
      return container(a, Kind::tuple);
    if (is_builtin(name, "set") || is_builtin(name, "frozenset")) return container(a, Kind::set);
    if (name == "torch.device") {
      need(!a.empty() && machine_[a[0]].kind == Kind::text, "a bad device");
      return a[0];
    }
    if (name == "_codecs.encode") {  // how protocol 2 writes bytes
      Value v{Kind::bytes, 0, 0, argument(a, 0, Kind::text).text, {}};
      note_copy(v.text.size());
      return machine_.add(std::move(v));
    }
    refuse(name);
  }
  [[noreturn]] void refuse(const std::string& name) const {
    fail("it holds an object of '" + name.substr(0, 200) +
         "', and files are read for their tensors, numbers, texts and containers only: nothing in "
         "them is executed");
  }
  static bool is_builtin(std::string_view name, std::string_view kind) {
    const size_t dot = name.rfind('.');
    return name.substr(dot + 1) == kind &&
           (name.substr(0, dot) == "builtins" || name.substr(0, dot) == "__builtin__");
  }

  size_t dict_of(const std::vector<size_t>& a) {
    Value v{Kind::dict, 0, 0, {}, {}};
    need(a.size() <= 1, "a bad dictionary");
    if (!a.empty())
      for (const size_t pair : machine_[a[0]].items) {
        need(machine_[pair].items.size() == 2 && machine_[pair].kind != Kind::dict,
             "a bad dictionary");
        note_copy(2);
        v.items.insert(v.items.end(), machine_[pair].items.begin(), machine_[pair].items.end());
      }
    return machine_.add(std::move(v));
  }
  size_t container(const std::vector<size_t>& a, Kind kind) {
    Value v{kind, 0, 0, {}, {}};
    need(a.size() <= 1 && (a.empty() || (machine_[a[0]].kind != Kind::dict &&
                                         machine_[a[0]].kind != Kind::text)),
         "a bad container");
    if (!a.empty()) v.items = machine_[a[0]].items;
    note_copy(v.items.size());
    return machine_.add(std::move(v));
  }
  // Few bytes may ask for a copy of many items, again and again.
  void note_copy(size_t items) {
    copied_ += items;
    need(copied_ <= 16 * file_.size(), "its values are copied too often");
  }

  TorchTensor& tensor(size_t value) {
    need(value < machine_.size() && machine_[value].kind == Kind::other &&
             machine_[value].integer % 2 == int64_t(Other::tensor),
         "a tensor is described wrongly");
    return result_.tensors[size_t(machine_[value].integer / 2)];
  }

  // State dictionaries and parameters have attributes (versions of modules, hooks), which are no
  // part of what is read.
  void build(size_t object, size_t state) {
    need((machine_[object].kind == Kind::dict || machine_[object].kind == Kind::other) &&
             machine_[state].kind != Kind::other,
         "an object that is no container and no tensor has a state");
  }

  // ---- the result

  TorchNode node(const Value& v) {
    TorchNode n;
    using To = TorchNode::Kind;
    switch (v.kind) {
      case Kind::boolean:
        n.kind = To::boolean;
        n.integer = v.integer;
        break;
      case Kind::integer:
        n.kind = To::integer;
        n.integer = v.integer;
        break;
      case Kind::real:
        n.kind = To::real;
        n.real = v.real;
        break;
      case Kind::text:
      case Kind::bytes:
      case Kind::global:  // a dtype, a class: its name
        n.kind = To::text;
        n.text = v.text;
        break;
      case Kind::list:
      case Kind::tuple:
      case Kind::set:
        n.kind = To::list;
        n.items = v.items;
        break;
      case Kind::dict:
        n.kind = To::dict;
        n.items = v.items;
        break;
      case Kind::other:
        if (v.integer % 2 == int64_t(Other::tensor)) {
          n.kind = To::tensor;
          n.integer = v.integer / 2;
        }
        break;
      case Kind::none:
      case Kind::mark:
        break;
    }
    return n;
  }

  std::span<const std::byte> file_;
  TorchFormat result_;
  const ZipReader* zip_ = nullptr;
  std::string prefix_;
  std::unordered_map<std::string, size_t> by_key_;
  std::vector<Named> named_;
  uint64_t copied_ = 0;
  PickleMachine machine_;
};

}  // namespace

TorchFormat parse_torch(std::span<const std::byte> file, std::string_view file_name) {
  return Reader(file, file_name).result();
}

}  // namespace arete::io
