// Averages gradients over processes while the backward pass that makes them goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arete/autograd/grad_sink.h"
#include "arete/distributed/process_group.h"

namespace arete::distributed {

// Note [Buckets of gradients]
// Parameters of one device and dtype share buckets, one tensor each, that are reduced in order, as
// soon as all gradients of a bucket are there. Ready gradients are packed by one launch, but for
// those that were added up in their place; the exchange divides them by the number of processes,
// but half types only where that is neither slow nor rounded: else it is done while they are
// packed. Afterwards `grad` is a view into the bucket. A compiled step makes gradients in the
// bucket where nobody else reads them before (compile/copies.cpp). The order of the buckets is that
// of the parameters, reversed, until a first pass has shown in which order gradients are ready on
// rank 0; that order is everybody's from then on.
//   Each pass says beforehand which parameters it reaches, so nobody waits for the others: they
// contribute what was accumulated for them before, or zeros. A number for each parameter behind the
// bucket's gradients says whether any process had a gradient. Only a process that had none itself
// looks at it, and leaves `grad` alone where nobody had one.
//   A bucket's memory stays where it is from pass to pass, unless somebody has kept a gradient of
//   an
// earlier pass: then the bucket moves, and what was kept stays as it was.

// Note [Sums in one order]
// Sums of floating-point numbers depend on their order. A deterministic reducer adds gradients as
// the leaves of one binary tree, whichever process has them: a process adds those of its own
// micro-batches as a binary counter carries (each sum is of as many gradients as the one that it is
// added to), and of a bucket each process adds up a part, of all processes, pairs of neighbours
// first. So 4 micro-batches of one process, 2 of each of two, and 1 of each of four have the same
// mean, to the last bit, if process r has the r-th part of them and their numbers are powers of
// two. Other numbers give the same bits in each run.

/// What a hook gets: the gradients of this process that are to be reduced together.
struct GradBucket {
  size_t index = 0;
  bool is_last = false;
  Tensor buffer;                  ///< 1-d, all of them
  std::vector<Tensor> gradients;  ///< views of it, in the parameters' shapes
  std::vector<Tensor> parameters;
  /// Another buffer, of any dtype, of which the gradients are views from now on. ValueError if it
  /// has not as many elements, in one dimension and in order.
  void set_buffer(const Tensor& other);
};
/// Starts the exchange of a bucket whose gradients are not divided yet. What it gives is called
/// when the pass has nothing else to do: the buffer's new values, in any tensor of its size.
using CommHook = std::function<std::function<Tensor()>(const GradBucket&)>;

struct ReducerOptions {
  /// The most bytes in a bucket, from the first one of a device and dtype on; the last number is
  /// for all that follow.
  std::vector<int64_t> bucket_bytes = {int64_t(1) << 20, int64_t(25) << 20};
  /// Every pass reaches the parameters that the first one reached; another is an error.
  bool static_graph = false;
  /// Buckets never move, whoever keeps gradients of an earlier pass.
  bool keep_memory = false;
  /// Note [Sums in one order]. There can be no hook then.
  bool deterministic = false;
  /// Tensors that require no gradients, of which it is an error if they do when a pass is prepared.
  std::vector<Tensor> frozen = {};
  /// The positions of tables whose gradients are sparse, and stay so: rows that some process has
  /// used. With a hook or `deterministic` they are exchanged whole.
  std::vector<size_t> sparse = {};
};

/// Made by all processes of a group with the same parameters in the same order, which are leaves
/// that require gradients. Passes that reach one of them must follow each other in the same order
/// everywhere.
class Reducer final : public autograd::GradSink, public std::enable_shared_from_this<Reducer> {
 public:
  /// `names`: of the parameters, for errors; or none.
  static std::shared_ptr<Reducer> make(std::vector<Tensor> parameters,
                                       std::vector<std::string> names, ProcessGroupPtr group,
                                       const ReducerOptions& options = {});
  ~Reducer() override;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Before a forward pass: whether the passes backward that follow are reduced; else gradients are
  /// only accumulated. ValueError if another reducer has taken a parameter over, or if something
  /// frozen requires a gradient.
  void prepare(bool reduces);
  bool reduces() const { return reduces_; }
  /// ValueError while a pass is under way, or if there is a hook.
  void set_hook(CommHook hook);
  /// Called at the end of each pass whose gradients are reduced, when they are there.
  void set_after(std::function<void()> after) { after_ = std::move(after); }
  /// By what gradients are divided; at first the number of processes. A hook divides them itself.
  void set_divisor(double divisor) { divisor_ = divisor; }
  /// As the option says, from the next pass on.
  void set_static_graph() { options_.static_graph = true; }
  /// Takes part in a pass of the others with nothing to give and without taking anything.
  void shadow();
  const ProcessGroupPtr& group() const { return group_; }
  /// The positions of parameters by buckets, in the order in which these are reduced.
  std::vector<std::vector<size_t>> buckets() const;
  /// How often buckets were given other parameters: after the first pass, once.
  int64_t rebuilt() const { return rebuilt_; }

  void begin(std::span<const size_t> places, bool create_graph) override;
  void ready(size_t place) override;
  void replaced(size_t place) override;

 private:
  struct Bucket;
  struct Ended;
  Reducer(std::vector<Tensor> parameters, std::vector<std::string> names, ProcessGroupPtr group,
          const ReducerOptions& options);
  std::string name_of(size_t place) const;
  bool is_under_way() const;
  void make_buckets(std::span<const size_t> order);
  void start(std::span<const size_t> places);
  void launch_ready();
  bool exchange_divides(const Tensor& like) const;
  void pack(Bucket& bucket);
  void launch(size_t index);
  void exchange_parts(Bucket& bucket);
  void sum_parts(Bucket& bucket);
  void set_apart(std::span<const size_t> places);
  void add_sums(size_t place);
  void finish();
  void take(Bucket& bucket);
  bool stays_sparse(size_t place) const;
  void exchange_sparse();
  void check_static(std::span<const size_t> places);
  void agree_on_order();

  const std::vector<Tensor> parameters_;
  const std::vector<std::string> names_;
  const ProcessGroupPtr group_;
  ReducerOptions options_;
  double divisor_;
  CommHook hook_;
  std::function<void()> after_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, size_t>> where_;  // each parameter's bucket and position in it
  bool reduces_ = true;
  bool shadows_ = false;
  std::optional<size_t> replaced_;
  int64_t rebuilt_ = 0;
  std::optional<std::vector<char>> reached_;  // static_graph: by the first pass
  // deterministic: what a leaf's gradient is the sum of, with the depth of each one's tree.
  struct Sums {
    std::vector<std::pair<int, Tensor>> trees;
    Tensor shown;  // as grad(), unless somebody else has changed that
    uint64_t version = 0;
    bool apart = false;  // not shown, while a pass brings another one
    void show(const Tensor& leaf);
  };
  std::vector<Sums> sums_;

  // Of the pass under way.
  uint64_t pass_ = 0;           // its number, 0 if there is none
  std::vector<char> expected_;  // parameters that it reaches
  std::vector<char> has_grad_;  // that have a gradient which was not reduced yet
  std::vector<size_t> order_;   // in which they were ready
  size_t next_ = 0;             // bucket to be launched
};

}  // namespace arete::distributed
