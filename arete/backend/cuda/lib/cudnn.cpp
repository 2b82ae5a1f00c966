#include "arete/backend/cuda/lib/cudnn.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda::cudnn {
namespace {

// libcudnn.so.9 is thin: it opens its parts (graph, heuristics, engines) from its own folder when
// they are needed.
const DynamicLibrary& shared_object() {
  static const auto* const l = new DynamicLibrary("cuDNN", {"libcudnn.so.9"});
  return *l;
}

struct Loaded {
  Library functions;
  std::string problem;
};

const Loaded& loaded() {
  static const Loaded* const l = [] {
    auto* const result = new Loaded;
    const DynamicLibrary& so = shared_object();
    if (!so.is_open()) {
      result->problem = so.problem();
      return result;
    }
#define ARETE_CUDNN_LOAD(name) so.look_up(result->functions.name, #name, result->problem);
    ARETE_CUDNN_FUNCTIONS(ARETE_CUDNN_LOAD)
#undef ARETE_CUDNN_LOAD
    return result;
  }();
  return *l;
}

struct RefusalRecord {
  std::mutex mutex;
  Refusals refusals;
};
RefusalRecord& refusal_record() {
  static auto* const r = new RefusalRecord;
  return *r;
}

}  // namespace

const std::string& problem() { return loaded().problem; }

const Library& library() {
  const Loaded& l = loaded();
  if (!l.problem.empty()) [[unlikely]]
    throw DeviceError("", l.problem);
  return l.functions;
}

std::string version() {
  const size_t v = library().cudnnGetVersion();
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

std::string explain(cudnnStatus_t status) {
  const Library& l = library();
  char text[1024] = "";
  l.cudnnGetLastErrorString(text, sizeof text);
  std::string s =
      std::string(l.cudnnGetErrorString(status)) + " (" + std::to_string(int(status)) + ")";
  return text[0] ? s + ": " + text : s;
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  const std::string text =
      std::string("cuDNN ") + version() + ": " + what + " failed: " + explain(status);
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    throw OutOfMemoryError("", text);
  throw DeviceError("", text);
}

bool logging() {
  static const bool on = [] {
    const char* v = std::getenv("ARETE_LOG_CUDNN");
    return v && *v && *v != '0';
  }();
  return on;
}

void log(const std::string& line) {
  if (logging()) std::fprintf(stderr, "arete cudnn: %s\n", line.c_str());
}

Refusals refusals() {
  RefusalRecord& r = refusal_record();
  const std::lock_guard lock(r.mutex);
  return r.refusals;
}

void note_refusal(const std::string& what) {
  log("refused: " + what);
  RefusalRecord& r = refusal_record();
  const std::lock_guard lock(r.mutex);
  ++r.refusals.count;
  r.refusals.last = what;
}

std::optional<cudnnDataType_t> data_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f32:
      return CUDNN_DATA_FLOAT;
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    default:
      return std::nullopt;
  }
}

// ---- descriptors ----

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(library().cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_) loaded().functions.cudnnBackendDestroyDescriptor(raw_);
}

void Descriptor::set(const char* what, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const cudnnStatus_t status = library().cudnnBackendSetAttribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check(status, (std::string("cudnnBackendSetAttribute of ") + what).c_str());
}

cudnnStatus_t Descriptor::try_finalize() noexcept {
  return loaded().functions.cudnnBackendFinalize(raw_);
}

void Descriptor::finalize(const char* what) {
  const cudnnStatus_t status = try_finalize();
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check(status, (std::string("cudnnBackendFinalize of ") + what).c_str());
}

int64_t Descriptor::get_int(const char* what, cudnnBackendAttributeName_t name) const {
  int64_t value = 0, count = 0;
  const cudnnStatus_t status =
      library().cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_INT64, 1, &count, &value);
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check(status, (std::string("cudnnBackendGetAttribute of ") + what).c_str());
  return value;
}

namespace {

// set() with the type of the attribute taken from the type of the value.
constexpr auto type_of(int64_t) { return CUDNN_TYPE_INT64; }
constexpr auto type_of(int32_t) { return CUDNN_TYPE_INT32; }
constexpr auto type_of(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr auto type_of(float) { return CUDNN_TYPE_FLOAT; }
constexpr auto type_of(double) { return CUDNN_TYPE_DOUBLE; }
constexpr auto type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr auto type_of(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr auto type_of(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr auto type_of(cudnnReduceTensorOp_t) { return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE; }
constexpr auto type_of(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
constexpr auto type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr auto type_of(cudnnBackendDescriptor_t) { return CUDNN_TYPE_BACKEND_DESCRIPTOR; }

template <class T>
void set_value(Descriptor& d, const char* what, cudnnBackendAttributeName_t name, T value) {
  d.set(what, name, type_of(value), 1, &value);
}
void set_list(Descriptor& d, const char* what, cudnnBackendAttributeName_t name, IntList values) {
  d.set(what, name, CUDNN_TYPE_INT64, int64_t(values.size()), values.data());
}

#define ARETE_CUDNN_SET(descriptor, name, value) \
  set_value(descriptor, #name, CUDNN_ATTR_##name, value)
#define ARETE_CUDNN_SET_LIST(descriptor, name, values) \
  set_list(descriptor, #name, CUDNN_ATTR_##name, values)

// The values of an attribute that is a list of enumerators.
template <class T>
std::vector<T> get_list(const Descriptor& d, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t capacity) {
  std::vector<T> values(static_cast<size_t>(capacity));
  int64_t count = 0;
  check(library().cudnnBackendGetAttribute(d.raw(), name, type, capacity, &count, values.data()),
        "cudnnBackendGetAttribute of an engine's notes");
  values.resize(size_t(std::min(count, capacity)));
  return values;
}

void take_notes(Candidate& candidate) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  int64_t count = 0;
  check(library().cudnnBackendGetAttribute(candidate.config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
        "cudnnBackendGetAttribute of ENGINECFG_ENGINE");
  candidate.engine = engine.get_int("ENGINE_GLOBAL_INDEX", CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  EngineNotes& n = candidate.notes;
  for (cudnnBackendNumericalNote_t note : get_list<cudnnBackendNumericalNote_t>(
           engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
           CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
    n.tensor_core |= note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    n.down_converts |= note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    n.reduced_precision_sum |= note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    n.fft |= note == CUDNN_NUMERICAL_NOTE_FFT;
    n.nondeterministic |= note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    n.winograd |= note == CUDNN_NUMERICAL_NOTE_WINOGRAD;
    n.winograd_large |= note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 ||
                        note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
                        note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
  }
  for (cudnnBackendBehaviorNote_t note : get_list<cudnnBackendBehaviorNote_t>(
           engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT))
    n.compiles |= note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
}

}  // namespace

std::string EngineNotes::to_string() const {
  std::string s;
  const auto add = [&](bool on, const char* text) {
    if (on) s += (s.empty() ? "" : ", ") + std::string(text);
  };
  add(tensor_core, "tensor cores");
  add(down_converts, "converts inputs down");
  add(reduced_precision_sum, "sums in reduced precision");
  add(fft, "FFT");
  add(winograd_large, "large Winograd tiles");
  add(winograd && !winograd_large, "Winograd");
  add(nondeterministic, "nondeterministic");
  add(compiles, "compiled when the plan is made");
  return s.empty() ? "plain" : s;
}

// ---- graphs ----

Descriptor& Graph::add_part(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }

Tensor Graph::add_tensor(int64_t id, cudnnDataType_t type, IntList sizes, IntList strides,
                         bool is_virtual, bool by_value) {
  // Every pointer that is bound must keep this promise; 16 bytes is what vector accesses need.
  constexpr int64_t kAlignment = 16;
  Descriptor& d = add_part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  ARETE_CUDNN_SET(d, TENSOR_DATA_TYPE, type);
  ARETE_CUDNN_SET_LIST(d, TENSOR_DIMENSIONS, sizes);
  ARETE_CUDNN_SET_LIST(d, TENSOR_STRIDES, strides);
  ARETE_CUDNN_SET(d, TENSOR_UNIQUE_ID, id);
  ARETE_CUDNN_SET(d, TENSOR_BYTE_ALIGNMENT, kAlignment);
  if (is_virtual) ARETE_CUDNN_SET(d, TENSOR_IS_VIRTUAL, true);
  if (by_value) ARETE_CUDNN_SET(d, TENSOR_IS_BY_VALUE, true);
  d.finalize(("a tensor with sizes " + arete::to_string(sizes) + ", strides " +
              arete::to_string(strides) + " and data type " + std::to_string(int(type)))
                 .c_str());
  return d.raw();
}

Tensor Graph::tensor(int64_t id, cudnnDataType_t type, IntList sizes, IntList strides) {
  return add_tensor(id, type, sizes, strides, false, false);
}

Tensor Graph::intermediate(cudnnDataType_t type, IntList sizes, IntList strides) {
  const Shape row_major = contiguous_strides(sizes);
  return add_tensor(next_intermediate_++, type, sizes,
                    strides.empty() ? IntList(row_major) : strides, true, false);
}

Tensor Graph::scalar(int64_t id, cudnnDataType_t type, int rank) {
  const Shape ones(size_t(rank), 1);
  return add_tensor(id, type, ones, ones, false, true);
}

void Graph::convolution(ConvolutionPass pass, const ConvolutionWindow& window,
                        cudnnDataType_t compute, Tensor x, Tensor w, Tensor y) {
  Descriptor& c = add_part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  ARETE_CUDNN_SET(c, CONVOLUTION_COMP_TYPE, compute);
  ARETE_CUDNN_SET(c, CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  ARETE_CUDNN_SET(c, CONVOLUTION_SPATIAL_DIMS, int64_t(window.stride.size()));
  ARETE_CUDNN_SET_LIST(c, CONVOLUTION_FILTER_STRIDES, window.stride);
  ARETE_CUDNN_SET_LIST(c, CONVOLUTION_PRE_PADDINGS, window.padding);
  ARETE_CUDNN_SET_LIST(c, CONVOLUTION_POST_PADDINGS, window.padding);
  ARETE_CUDNN_SET_LIST(c, CONVOLUTION_DILATIONS, window.dilation);
  c.finalize("a convolution");

  // The factors have the type of the sum.
  const auto set_factor = [&](Descriptor& op, const char* what, cudnnBackendAttributeName_t name,
                              double value) {
    if (compute == CUDNN_DATA_DOUBLE)
      set_value(op, what, name, value);
    else
      set_value(op, what, name, float(value));
  };
#define ARETE_CUDNN_CONVOLUTION(prefix, x_name, w_name, y_name)     \
  ARETE_CUDNN_SET(op, prefix##_CONV_DESC, c.raw());                 \
  ARETE_CUDNN_SET(op, prefix##_##x_name, x);                        \
  ARETE_CUDNN_SET(op, prefix##_##w_name, w);                        \
  ARETE_CUDNN_SET(op, prefix##_##y_name, y);                        \
  set_factor(op, #prefix "_ALPHA", CUDNN_ATTR_##prefix##_ALPHA, 1); \
  set_factor(op, #prefix "_BETA", CUDNN_ATTR_##prefix##_BETA, 0);   \
  op.finalize(#prefix)
  switch (pass) {
    case ConvolutionPass::forward: {
      Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
      ARETE_CUDNN_CONVOLUTION(OPERATION_CONVOLUTION_FORWARD, X, W, Y);
      operations_.push_back(std::move(op));
      break;
    }
    case ConvolutionPass::data_gradient: {
      Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
      ARETE_CUDNN_CONVOLUTION(OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY);
      operations_.push_back(std::move(op));
      break;
    }
    case ConvolutionPass::weight_gradient: {
      Descriptor op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
      ARETE_CUDNN_CONVOLUTION(OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY);
      operations_.push_back(std::move(op));
      break;
    }
  }
#undef ARETE_CUDNN_CONVOLUTION
}

void Graph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute, Tensor out, Tensor x,
                      Tensor b, Tensor t, int64_t axis) {
  Descriptor& p = add_part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  ARETE_CUDNN_SET(p, POINTWISE_MODE, mode);
  ARETE_CUDNN_SET(p, POINTWISE_MATH_PREC, compute);
  if (axis >= 0) ARETE_CUDNN_SET(p, POINTWISE_AXIS, axis);
  p.finalize("a pointwise function");
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  ARETE_CUDNN_SET(op, OPERATION_POINTWISE_PW_DESCRIPTOR, p.raw());
  ARETE_CUDNN_SET(op, OPERATION_POINTWISE_XDESC, x);
  if (b) ARETE_CUDNN_SET(op, OPERATION_POINTWISE_BDESC, b);
  if (t) ARETE_CUDNN_SET(op, OPERATION_POINTWISE_TDESC, t);
  ARETE_CUDNN_SET(op, OPERATION_POINTWISE_YDESC, out);
  op.finalize(("OPERATION_POINTWISE of mode " + std::to_string(int(mode))).c_str());
  operations_.push_back(std::move(op));
}

void Graph::matmul(cudnnDataType_t compute, Tensor a, Tensor b, Tensor c) {
  Descriptor& m = add_part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  ARETE_CUDNN_SET(m, MATMUL_COMP_TYPE, compute);
  m.finalize("a matrix product");
  Descriptor op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  ARETE_CUDNN_SET(op, OPERATION_MATMUL_DESC, m.raw());
  ARETE_CUDNN_SET(op, OPERATION_MATMUL_ADESC, a);
  ARETE_CUDNN_SET(op, OPERATION_MATMUL_BDESC, b);
  ARETE_CUDNN_SET(op, OPERATION_MATMUL_CDESC, c);
  op.finalize("OPERATION_MATMUL");
  operations_.push_back(std::move(op));
}

void Graph::reduction(cudnnReduceTensorOp_t reduce, cudnnDataType_t compute, Tensor x, Tensor y) {
  Descriptor& r = add_part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  ARETE_CUDNN_SET(r, REDUCTION_OPERATOR, reduce);
  ARETE_CUDNN_SET(r, REDUCTION_COMP_TYPE, compute);
  r.finalize("a reduction");
  Descriptor op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  ARETE_CUDNN_SET(op, OPERATION_REDUCTION_DESC, r.raw());
  ARETE_CUDNN_SET(op, OPERATION_REDUCTION_XDESC, x);
  ARETE_CUDNN_SET(op, OPERATION_REDUCTION_YDESC, y);
  op.finalize("OPERATION_REDUCTION");
  operations_.push_back(std::move(op));
}

void Graph::reshape(Tensor x, Tensor y) {
  Descriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  ARETE_CUDNN_SET(op, OPERATION_RESHAPE_XDESC, x);
  ARETE_CUDNN_SET(op, OPERATION_RESHAPE_YDESC, y);
  op.finalize("OPERATION_RESHAPE");
  operations_.push_back(std::move(op));
}

void Graph::finish(const Target& target) {
  handle_ = target.handle;
  if (!handle_) {
    device_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device_->set("DEVICEPROP_JSON_REPRESENTATION", CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                 CUDNN_TYPE_CHAR, int64_t(target.device_json.size() + 1),
                 target.device_json.c_str());
    device_->finalize("the properties of a device");
  }
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& op : operations_) operations.push_back(op.raw());
  graph_.emplace(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle_) ARETE_CUDNN_SET(*graph_, OPERATIONGRAPH_HANDLE, handle_);
  graph_->set("OPERATIONGRAPH_OPS", CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              int64_t(operations.size()), operations.data());
  graph_->finalize("a graph of operations");
}

std::vector<Candidate> Graph::candidates(cudnnBackendHeurMode_t mode, std::string* why) const {
  const Library& l = library();
  const auto failed = [&](cudnnStatus_t status, const char* what) {
    if (status == CUDNN_STATUS_SUCCESS) return false;
    if (why) *why = std::string(what) + ": " + explain(status);
    return true;
  };
  std::vector<Candidate> out;
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  ARETE_CUDNN_SET(heuristics, ENGINEHEUR_OPERATION_GRAPH, graph_->raw());
  ARETE_CUDNN_SET(heuristics, ENGINEHEUR_MODE, mode);
  if (device_) ARETE_CUDNN_SET(heuristics, ENGINEHEUR_DEVICEPROP, device_->raw());
  if (failed(heuristics.try_finalize(), "heuristics")) return out;
  int64_t count = 0;
  if (failed(l.cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
             "number of engines"))
    return out;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back({Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), {}, -1});
    raw.push_back(out.back().config.raw());
  }
  int64_t got = 0;
  if (count > 0 &&
      failed(l.cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, raw.data()),
             "engines"))
    return {};
  out.erase(out.begin() + std::min(got, count), out.end());
  for (Candidate& c : out) take_notes(c);
  return out;
}

// ---- plans ----

Plan::Plan(std::shared_ptr<const Graph> graph, Candidate&& candidate, Descriptor&& plan)
    : graph_(std::move(graph)), candidate_(std::move(candidate)), plan_(std::move(plan)) {
  workspace_bytes_ = size_t(
      plan_.get_int("EXECUTION_PLAN_WORKSPACE_SIZE", CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

std::optional<Plan> Plan::make(std::shared_ptr<const Graph> graph, Candidate&& candidate,
                               std::string* why) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (graph->handle_) ARETE_CUDNN_SET(plan, EXECUTION_PLAN_HANDLE, graph->handle_);
  if (graph->device_) ARETE_CUDNN_SET(plan, EXECUTION_PLAN_DEVICEPROP, graph->device_->raw());
  ARETE_CUDNN_SET(plan, EXECUTION_PLAN_ENGINE_CONFIG, candidate.config.raw());
  if (const cudnnStatus_t status = plan.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    const std::string text = "engine " + std::to_string(candidate.engine) + " (" +
                             candidate.notes.to_string() + "): " + explain(status);
    log("skipped " + text);
    if (why) *why = text;
    return std::nullopt;
  }
  return Plan(std::move(graph), std::move(candidate), std::move(plan));
}

std::string Plan::to_string() const {
  return "engine " + std::to_string(candidate_.engine) + " (" + candidate_.notes.to_string() +
         "), " + std::to_string(workspace_bytes_) + " bytes of workspace";
}

void Plan::execute(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const {
  constexpr size_t kMost = 16;
  ARETE_ASSERT(bindings.size() <= kMost);
  std::array<int64_t, kMost> ids;
  std::array<void*, kMost> pointers;
  for (size_t i = 0; i < bindings.size(); ++i)
    ids[i] = bindings[i].id, pointers[i] = bindings[i].data;
  // Made anew each time: a finalized pack cannot be changed.
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set("VARIANT_PACK_UNIQUE_IDS", CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           int64_t(bindings.size()), ids.data());
  pack.set("VARIANT_PACK_DATA_POINTERS", CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           int64_t(bindings.size()), pointers.data());
  pack.set("VARIANT_PACK_WORKSPACE", CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
           &workspace);
  pack.finalize("VARIANT_PACK");
  const cudnnStatus_t status = library().cudnnBackendExecute(handle, plan_.raw(), pack.raw());
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check(status, ("cudnnBackendExecute of " + to_string()).c_str());
}

// ---- handles ----

namespace {

constexpr int kMaxDevices = 64;

struct OwnedHandle {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  bool is_set_up = false;
};

// Handles that ended threads have left; handles are never destroyed, since the driver may be gone
// before the last thread is.
struct HandlePool {
  std::mutex mutex;
  std::array<std::vector<OwnedHandle>, kMaxDevices> free;
};
HandlePool& handle_pool() {
  static auto* const p = new HandlePool;
  return *p;
}

struct ThreadHandles {
  std::array<OwnedHandle, kMaxDevices> handles;
  ~ThreadHandles() {
    HandlePool& pool = handle_pool();
    const std::lock_guard lock(pool.mutex);
    for (size_t d = 0; d < handles.size(); ++d)
      if (handles[d].handle) pool.free[d].push_back(handles[d]);
  }
};

// A handle that an ended thread has left, or a new one. Where setting it up fails it stays in its
// place, and the next call goes on with it.
void set_up(OwnedHandle& h, size_t ordinal) {
  if (!h.handle) {
    HandlePool& pool = handle_pool();
    const std::lock_guard lock(pool.mutex);
    if (auto& free = pool.free[ordinal]; !free.empty()) {
      h = free.back();
      free.pop_back();
    }
  }
  if (h.is_set_up) return;
  if (!h.handle) check(library().cudnnCreate(&h.handle), "cudnnCreate");
  finish_setup(DeviceContext::get(int(ordinal)));
  h.is_set_up = true;
}

}  // namespace

cudnnHandle_t handle(int ordinal, cudaStream_t stream) {
  thread_local ThreadHandles own;
  ARETE_ASSERT(ordinal >= 0 && ordinal < kMaxDevices);
  OwnedHandle& h = own.handles[size_t(ordinal)];
  if (!h.is_set_up) [[unlikely]]
    set_up(h, size_t(ordinal));
  if (h.stream != stream) {
    check(library().cudnnSetStream(h.handle, stream), "cudnnSetStream");
    h.stream = stream;
  }
  return h.handle;
}

}  // namespace arete::cuda::cudnn
