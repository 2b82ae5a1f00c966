// Parameters of which each process of a group keeps a part, and which are whole while they are
// used.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arete/autograd/grad_sink.h"
#include "arete/distributed/process_group.h"

namespace arete::distributed {

// Note [Sharded parameters]
// Each process keeps ceil(rows / processes) rows of each parameter, the last ones fewer or none;
// the memory of a shard is padded to that many, so that all are equally large. What a row is, the
// caller says: parameters that are divided along another dimension than the first have that one
// outermost in memory, whole and in parts, and so have strides like those of a transposed tensor.
// The leaf itself goes
// on to be what the program and its optimizers hold: it shows its shard, and while its module runs,
// and in passes backward, all rows.
//   All rows of a group of parameters lie in one storage, which lives as long as the group, so that
// what operators save for backward needs no care. Its memory comes and goes: it is gathered in the
// place where it is used, each process' rows copied (and converted) into their place before.
// Between forward and backward pass there is none, and who looks at it then gets an error. Memory
// comes from a pool that the groups of a network share, and that is empty after a pass: a group is
// gathered while the one before it computes, so there are two or three pieces of each size. Where
// calls are put off it is a promise, until it would be given back: one of a plan's temporaries.
//   Leaves count their writes themselves (TensorImpl::own_version): to gather is no write, and a
// step between forward and backward pass is noticed as in any program.
//   Gradients are those of all rows. When the last one of a group is there they are packed, divided
// and scattered while the pass goes on; at its end `grad` is that of the shard. A number for each
// parameter says whether any process had a gradient, as in Note [Buckets of gradients].

struct ShardingOptions {
  /// What parameters are while they are used; none: as they are.
  std::optional<DType> param_dtype = {};
  /// In which gradients are summed; none: as they come.
  std::optional<DType> reduce_dtype = {};
  /// Whether the memory of all rows is given back between forward and backward pass.
  bool reshard_after_forward = true;
  /// Who has all rows together meanwhile, a part each, and gathers them again: of each so many
  /// ranks of the group that follow each other; none: all of the group, who have shards anyway.
  ProcessGroupPtr kept_by = nullptr;
  /// Shards, their gradients and optimizer states are in host memory; pinned if asked for. Here
  /// parameters are computed with.
  std::optional<Device> offload_from = {};
  bool pin_memory = true;
  /// Over whose processes the same shards exist, whose gradients are averaged, too.
  ProcessGroupPtr replicas = nullptr;
  /// Along which dimension each parameter is divided; empty: the first.
  std::vector<int> dims = {};
};

class ShardedParameters;

/// What the groups of one network share: the memory of gathered parameters, and in which order they
/// are used.
class ShardedNetwork {
 public:
  ShardedNetwork();
  ~ShardedNetwork();
  ShardedNetwork(const ShardedNetwork&) = delete;
  ShardedNetwork& operator=(const ShardedNetwork&) = delete;
  /// Before a forward pass of the whole network.
  void begin_forward();

 private:
  friend class ShardedParameters;
  struct Block {
    StoragePtr memory;
    const void* stream;
  };
  struct Reduction;

  StoragePtr take(Device device, size_t bytes);
  void give(StoragePtr memory);
  void note_pass();
  void end_pass();
  void keep_reductions(size_t most);

  std::vector<Block> free_;
  // In forward passes: as groups began, in this one and the one before, and as they ended.
  std::vector<std::weak_ptr<ShardedParameters>> began_, expected_, ended_;
  std::deque<std::unique_ptr<Reduction>> reductions_;   // under way
  std::vector<std::weak_ptr<ShardedParameters>> used_;  // in the pass backward
  uint64_t pass_ = 0;
};

/// The parameters of one module, gathered and scattered together. Made by all processes of a group
/// with the same parameters; these must use them in the same order.
class ShardedParameters final : public autograd::GradSink,
                                public std::enable_shared_from_this<ShardedParameters> {
 public:
  /// Takes the shards out of `parameters`, each of which is a contiguous leaf with at least one
  /// dimension. ValueError for others, where `dims` are no dimensions of theirs, and where
  /// `kept_by` is no part of the group that others like it make whole; NotImplementedError for
  /// gradients of different dtypes.
  static std::shared_ptr<ShardedParameters> make(std::vector<Tensor> parameters,
                                                 std::vector<std::string> names,
                                                 ProcessGroupPtr group,
                                                 const ShardingOptions& options = {});
  ~ShardedParameters() override;
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  void join(std::shared_ptr<ShardedNetwork> network);
  /// Around a forward pass of the module, with all tensors that go in and come out.
  void before_forward(std::span<const Tensor> inputs);
  void after_forward(std::span<const Tensor> outputs);
  /// Begins to gather all rows, and shows them if `shows`.
  void unshard(bool shows);
  /// Shows the shards, and gives the memory of all rows back.
  void reshard();
  bool is_unsharded() const { return present_; }
  /// All rows of a parameter in a tensor of their own, or of others that are spread as it is; all
  /// processes call it.
  Tensor gathered(size_t index, const Tensor& others = {}) const;
  /// Where a parameter's rows of this process begin, along the dimension that is divided.
  int64_t first_row(size_t index) const;
  IntList full_sizes(size_t index) const;
  /// Other leaves in the place of the parameters, of their shards' sizes (which a module has been
  /// given by to(), to_empty(), ...).
  void rebind(std::vector<Tensor> parameters);
  const std::vector<Tensor>& parameters() const { return parameters_; }

  ShardingOptions options;
  /// Whether gradients are scattered after a pass, else summed up whole; whether those of replicas,
  /// if there are any, are averaged, else summed up as shards.
  bool reduces = true, all_reduces = true;
  /// Is given what was reduced at the end of a pass: the gradients of all parameters' rows of this
  /// process, one after the other from multiples of 256 bytes on, with zeros between them, which it
  /// may write to, with collectives of its own, too.
  std::function<void(const Tensor&)> all_reduce_hook = {};
  bool reshard_after_backward = true;
  /// By what gradients are divided; none: the number of processes.
  std::optional<double> divisor = {};
  /// Which groups are gathered ahead, in the place of the next one of the last pass.
  std::optional<std::vector<std::weak_ptr<ShardedParameters>>> forward_prefetch = {},
                                                               backward_prefetch = {};

  void begin(std::span<const size_t> places, bool create_graph) override;
  void ready(size_t place) override;
  bool keeps_hooks(size_t place) const override { return pass_ != 0 && awaited_[place]; }
  void replaced(size_t place) override;

 private:
  friend class ShardedNetwork;
  struct Part {
    Shape sizes;          // of all rows
    int dim = 0;          // along which rows are counted
    int64_t rows, first;  // of this process
    int64_t chunk;        // elements of a shard, with the padding
    DType dtype;          // while it is used
    Layout shard, whole;  // of the leaf
    DType shard_dtype;
    StoragePtr memory;    // of the shard
    uint64_t writes = 0;  // to it, when it was gathered
  };
  struct Call;
  ShardedParameters(std::vector<Tensor> parameters, std::vector<std::string> names,
                    ProcessGroupPtr group, const ShardingOptions& options);
  int64_t row_elements(const Part& part) const;
  void lay_out();
  void take_shard(size_t index, const Tensor& values);
  void take_over();
  void show(bool whole);
  Tensor piece(const Part& part, const ProcessGroup& who) const;
  void gather();
  void keep();
  void drop();
  bool is_stale() const;
  void prefetch(const std::vector<std::weak_ptr<ShardedParameters>>& list);
  void gather_ahead(auto&& next);
  void prefetch_previous();
  void enter_backward(const std::shared_ptr<Call>& call);
  void join_pass();
  void leave_backward();
  void finish_pass();
  void complete();
  void reduce();
  bool waits_for_replicas() const { return options.replicas && !all_reduces; }
  std::vector<Tensor> give_gradients(Tensor flat, bool unsure);

  std::vector<Tensor> parameters_;
  const std::vector<std::string> names_;
  const ProcessGroupPtr group_;
  std::shared_ptr<ShardedNetwork> network_;
  std::vector<Part> parts_;
  Device device_;             // where it is used
  StoragePtr whole_;          // all rows of all parameters
  StoragePtr borrowed_;       // the memory that it has now
  std::vector<Tensor> kept_;  // by this process for options.kept_by, of each parameter
  bool present_ = false, shows_whole_ = false;
  std::vector<char> has_sink_;

  // Gradients.
  std::vector<Tensor> sums_;     // of all rows, that were not reduced yet
  Tensor partial_;               // of the shards, that replicas have not seen yet
  Tensor ones_;                  // says that all had a gradient
  std::vector<Tensor> before_;   // `grad` before the pass
  std::vector<size_t> trained_;  // what is reduced in this pass
  uint64_t pass_ = 0;            // that brings gradients; 0: none
  std::vector<char> awaited_;
  size_t missing_ = 0;
  std::vector<std::shared_ptr<Call>> calls_;  // forward passes under way
  int64_t active_ = 0;  // calls in the pass backward whose inputs' gradients are not known yet
};

}  // namespace arete::distributed
