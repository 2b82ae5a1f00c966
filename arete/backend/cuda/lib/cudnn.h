// cuDNN through its C interface for graphs: the library opened when first needed, descriptors as
// values, and the way from tensors and operations to a plan that runs.
//
//   Graph graph;
//   const Tensor x = graph.tensor(kX, type, sizes, strides), ...;
//   graph.convolution(ConvolutionPass::forward, window, x, w, y);
//   graph.finish(target);
//   for (Candidate& c : graph.candidates(CUDNN_HEUR_MODE_A))   // best first, says cuDNN
//     if (std::optional<Plan> plan = Plan::make(graph, c)) ...
//   plan->execute(handle, {{kX, pointer}, ...}, workspace);
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/dtype.h"
#include "arete/core/layout.h"

namespace arete::cuda::cudnn {

#define ARETE_CUDNN_FUNCTIONS(X)   \
  X(cudnnGetVersion)               \
  X(cudnnGetErrorString)           \
  X(cudnnGetLastErrorString)       \
  X(cudnnCreate)                   \
  X(cudnnSetStream)                \
  X(cudnnBackendCreateDescriptor)  \
  X(cudnnBackendDestroyDescriptor) \
  X(cudnnBackendSetAttribute)      \
  X(cudnnBackendGetAttribute)      \
  X(cudnnBackendFinalize)          \
  X(cudnnBackendExecute)

/// Pointers to the library's functions, under their plain names.
struct Library {
#define ARETE_CUDNN_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_CUDNN_FUNCTIONS(ARETE_CUDNN_POINTER)
#undef ARETE_CUDNN_POINTER
};

/// The loaded library; DeviceError saying why there is none.
const Library& library();
/// Empty if the library can be loaded, else why not.
const std::string& problem();
/// "9.19.0".
std::string version();

/// Status, its name and what the library adds to it: "CUDNN_STATUS_BAD_PARAM (2000): ...".
std::string explain(cudnnStatus_t status);
/// Throws OutOfMemoryError or DeviceError naming `what` unless `status` is success.
void check(cudnnStatus_t status, const char* what);

/// Work that cuDNN refused, so that something slower was used instead: how often, and why the last
/// time. With ARETE_LOG_CUDNN=1 each reason goes to stderr when it occurs.
struct Refusals {
  int64_t count = 0;
  std::string last;
};
Refusals refusals();
void note_refusal(const std::string& what);
/// True with ARETE_LOG_CUDNN=1; `log` writes a line to stderr then.
bool logging();
void log(const std::string& line);

/// f16, bf16, f32, f64; nothing for other types.
std::optional<cudnnDataType_t> data_type(DType dtype);

/// An opaque object of the library. Its attributes are set first, then it is finalized.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& o) noexcept : raw_(std::exchange(o.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(raw_, o.raw_);
    return *this;
  }
  ~Descriptor();
  cudnnBackendDescriptor_t raw() const { return raw_; }

  /// `what` names the attribute in errors.
  void set(const char* what, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const void* values);
  void finalize(const char* what);
  /// Success, or why not.
  cudnnStatus_t try_finalize() noexcept;
  int64_t get_int(const char* what, cudnnBackendAttributeName_t name) const;

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

/// What plans are made for: the device of a handle, or one that is only described (in cuDNN's
/// JSON), so that the choice of engines can be looked at without a GPU.
struct Target {
  cudnnHandle_t handle = nullptr;
  std::string device_json;
};

/// What cuDNN says about the numbers an engine computes and how it works.
struct EngineNotes {
  bool tensor_core = false, down_converts = false, reduced_precision_sum = false, fft = false,
       nondeterministic = false, winograd = false, winograd_large = false;
  bool compiles = false;  // its kernel is compiled when the plan is made, which takes long
  std::string to_string() const;
};

/// One way to run a graph.
struct Candidate {
  Descriptor config;
  EngineNotes notes;
  int64_t engine;  // its number within the graph's engines
};

/// A tensor of a Graph.
using Tensor = cudnnBackendDescriptor_t;

enum class ConvolutionPass : uint8_t { forward, data_gradient, weight_gradient };

/// Per spatial dimension.
struct ConvolutionWindow {
  Shape stride, padding, dilation;
};

/// Tensors and operations on them. Movable; what it hands out lives as long as it does.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  /// In memory; `id` (> 0, unique in the graph) names it when the plan runs. Strides are in
  /// elements.
  Tensor tensor(int64_t id, cudnnDataType_t type, IntList sizes, IntList strides);
  /// Passed from one operation to another only; row-major unless strides are given.
  Tensor intermediate(cudnnDataType_t type, IntList sizes, IntList strides = {});
  /// A number that the host passes when the plan runs: all sizes 1.
  Tensor scalar(int64_t id, cudnnDataType_t type, int rank);

  /// `compute`: the type of the sum. x, w and y by their roles in the forward pass.
  void convolution(ConvolutionPass pass, const ConvolutionWindow& window, cudnnDataType_t compute,
                   Tensor x, Tensor w, Tensor y);
  /// out = mode(x), mode(x, b) or, with BINARY_SELECT, t ? x : b. `axis` is for GEN_INDEX.
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute, Tensor out, Tensor x,
                 Tensor b = nullptr, Tensor t = nullptr, int64_t axis = -1);
  /// c = a @ b over the last two dimensions.
  void matmul(cudnnDataType_t compute, Tensor a, Tensor b, Tensor c);
  /// y = x reduced over the dimensions where y has size 1.
  void reduction(cudnnReduceTensorOp_t op, cudnnDataType_t compute, Tensor x, Tensor y);

  /// y = x with y's sizes and strides: another view of the same elements.
  void reshape(Tensor x, Tensor y);

  /// No operation comes after this.
  void finish(const Target& target);
  /// Engine configurations, the best first; empty if cuDNN has none (`why` says what it said).
  std::vector<Candidate> candidates(cudnnBackendHeurMode_t mode, std::string* why = nullptr) const;

 private:
  friend class Plan;
  Tensor add_tensor(int64_t id, cudnnDataType_t type, IntList sizes, IntList strides,
                    bool is_virtual, bool by_value);
  Descriptor& add_part(cudnnBackendDescriptorType_t type);

  // Tensors and operators' descriptors, in a container that never moves them.
  std::deque<Descriptor> parts_;
  std::vector<Descriptor> operations_;
  std::optional<Descriptor> graph_, device_;
  cudnnHandle_t handle_ = nullptr;
  int64_t next_intermediate_ = int64_t{1} << 32;
};

/// What a tensor of a graph is bound to in one run.
struct Binding {
  int64_t id;
  void* data;
};

/// A graph compiled for one engine. Running changes nothing in it, but engines are not all safe to
/// be run by two threads at once: hold a lock.
class Plan {
 public:
  /// Nothing if the engine cannot run the graph after all; `why` says so.
  static std::optional<Plan> make(std::shared_ptr<const Graph> graph, Candidate&& candidate,
                                  std::string* why = nullptr);
  size_t workspace_bytes() const { return workspace_bytes_; }
  const EngineNotes& notes() const { return candidate_.notes; }
  /// "engine 5 (tensor cores), 1024 bytes of workspace".
  std::string to_string() const;
  void execute(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  Plan(std::shared_ptr<const Graph> graph, Candidate&& candidate, Descriptor&& plan);
  std::shared_ptr<const Graph> graph_;
  Candidate candidate_;
  Descriptor plan_;
  size_t workspace_bytes_ = 0;
};

/// The calling thread's handle for a device, working on `stream`. The device's context must be
/// current.
cudnnHandle_t handle(int ordinal, cudaStream_t stream);

}  // namespace arete::cuda::cudnn
