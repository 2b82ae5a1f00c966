#include "arete/distributed/reducer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "arete/autograd/engine.h"
#include "arete/compile/compile.h"
#include "arete/core/modes.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/packing_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/foreach.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/ops/target.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {

struct Reducer::Bucket {
  std::vector<size_t> places;
  Tensor memory;              // the gradients, then the numbers that say who had one
  Tensor buffer, had;         // these parts of it
  std::vector<Tensor> views;  // one for each place
  Tensor ones;                // to pack where all have a gradient
  Tensor parts;               // of all processes, of which this one makes the sum
  size_t missing = 0;         // gradients that this pass will still bring
  WorkPtr work, had_work;
  std::function<Tensor()> result;            // of a hook
  std::shared_ptr<const std::string> label;  // in reports
};

void GradBucket::set_buffer(const Tensor& other) {
  ARETE_CHECK(
      other.dim() == 1 && other.numel() == buffer.numel() && other.is_contiguous(),
      ValueError("set_buffer", "a bucket's buffer has one dimension, and its elements in order")
          .expected(std::to_string(buffer.numel()) + " elements")
          .got(std::to_string(other.numel())));
  for (Tensor& g : gradients) {
    Layout layout = g.layout();
    layout.offset += other.layout().offset - buffer.layout().offset;
    g = ops::alias(other, std::move(layout));
  }
  buffer = other;
}

namespace {

// The elements of a bucket that belong to a parameter, laid out as the parameter is.
Tensor view_in(const Tensor& memory, const Tensor& parameter, int64_t offset) {
  Layout layout = parameter.layout();
  if (!layout.is_dense()) layout = Layout(parameter.sizes());
  layout.offset = offset;
  return ops::alias(memory, std::move(layout));
}

// The depth of what a gradient was before: zeros, or what others have written. Nothing is as deep,
// so that the trees of what comes are those of a gradient that was not there.
constexpr int kBefore = std::numeric_limits<int>::max();

bool is_kept_by_others(const Tensor& view) { return view.impl()->use_count() > 1; }

}  // namespace

std::shared_ptr<Reducer> Reducer::make(std::vector<Tensor> parameters,
                                       std::vector<std::string> names, ProcessGroupPtr group,
                                       const ReducerOptions& options) {
  ARETE_CHECK(group, ValueError("Reducer", "there is no group"));
  ARETE_CHECK(!parameters.empty(), ValueError("Reducer", "there are no parameters"));
  ARETE_CHECK(names.empty() || names.size() == parameters.size(),
              ValueError("Reducer", "there must be a name for each parameter, or none"));
  const std::vector<int64_t>& bytes = options.bucket_bytes;
  ARETE_CHECK(!bytes.empty() && std::ranges::all_of(bytes, [](int64_t n) { return n > 0; }),
              ValueError("Reducer", "the sizes of buckets must be positive"));
  std::shared_ptr<Reducer> reducer(
      new Reducer(std::move(parameters), std::move(names), std::move(group), options));
  for (size_t i = 0; i < reducer->parameters_.size(); ++i)
    autograd::set_grad_sink(reducer->parameters_[i], reducer, i);
  return reducer;
}

Reducer::Reducer(std::vector<Tensor> parameters, std::vector<std::string> names,
                 ProcessGroupPtr group, const ReducerOptions& options)
    : parameters_(std::move(parameters)),
      names_(std::move(names)),
      group_(std::move(group)),
      options_(options),
      divisor_(group_->size()),
      expected_(parameters_.size()),
      has_grad_(parameters_.size()) {
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t(0));
  make_buckets(order);
}

Reducer::~Reducer() {
  for (const Tensor& p : parameters_) autograd::remove_grad_sink(p, this);
}

std::string Reducer::name_of(size_t place) const {
  return names_.empty() ? "parameter " + std::to_string(place) : names_[place];
}

void Reducer::make_buckets(std::span<const size_t> order) {
  buckets_.clear();
  where_.assign(parameters_.size(), {});
  const std::vector<int64_t>& limits = options_.bucket_bytes;
  // Of each device and dtype, whose limits count from the first one: a bucket, until it is full.
  struct Open {
    size_t index, limit;
    int64_t bytes;  // from its first gradient on
  };
  std::map<std::pair<std::string, DType>, Open> open;
  for (const size_t place : order) {
    if (stays_sparse(place)) continue;
    const Tensor& p = parameters_[place];
    const auto [at, is_new] =
        open.try_emplace({p.device().to_string(), p.dtype()}, Open{buckets_.size(), 0, 0});
    auto& [index, limit, bytes] = at->second;
    if (is_new) buckets_.emplace_back();
    if (bytes > 0 && bytes + int64_t(p.nbytes()) > limits[limit]) {
      index = buckets_.size();
      limit = std::min(limit + 1, limits.size() - 1);
      bytes = 0;
      buckets_.emplace_back();
    }
    bytes += int64_t(p.nbytes());
    where_[place] = {index, buckets_[index].places.size()};
    buckets_[index].places.push_back(place);
  }
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& b = buckets_[i];
    std::string text = "DDP bucket " + std::to_string(i + 1) + " of " +
                       std::to_string(buckets_.size()) + ": " + name_of(b.places.front());
    if (b.places.size() > 1) text += ".." + name_of(b.places.back());
    b.label = std::make_shared<const std::string>(std::move(text));
  }
}

std::vector<std::vector<size_t>> Reducer::buckets() const {
  std::vector<std::vector<size_t>> result;
  for (const Bucket& b : buckets_) result.push_back(b.places);
  return result;
}

void Reducer::prepare(bool reduces) {
  ARETE_CHECK(!replaced_, ValueError("DistributedDataParallel",
                                     name_of(*replaced_) +
                                         " has been given to another DistributedDataParallel, "
                                         "which reduces its gradient now"));
  for (const Tensor& t : options_.frozen)
    ARETE_CHECK(!t.requires_grad(),
                ValueError("DistributedDataParallel",
                           "a parameter that was frozen when the network was wrapped requires a "
                           "gradient now, which nobody would reduce; wrap the network again"));
  reduces_ = reduces;
}

void Reducer::replaced(size_t place) { replaced_ = place; }

void Reducer::set_hook(CommHook hook) {
  ARETE_CHECK(!hook_, ValueError("register_comm_hook",
                                 "register_comm_hook or register_builtin_comm_hook can only be "
                                 "called once."));
  ARETE_CHECK(!options_.deterministic,
              ValueError("register_comm_hook",
                         "deterministic=True exchanges gradients in its own way, without hooks"));
  ARETE_CHECK(!is_under_way(), ValueError("register_comm_hook", "a backward pass is under way"));
  hook_ = std::move(hook);
  if (!options_.sparse.empty()) {
    std::vector<size_t> order(parameters_.size());
    std::iota(order.rbegin(), order.rend(), size_t(0));
    make_buckets(order);
  }
}

bool Reducer::stays_sparse(size_t place) const {
  return !hook_ && !options_.deterministic &&
         std::ranges::find(options_.sparse, place) != options_.sparse.end();
}

// ---- a pass

// One that failed has left its number.
bool Reducer::is_under_way() const {
  const std::vector<uint64_t> passes = autograd::passes_under_way();
  return std::ranges::find(passes, pass_) != passes.end();
}

void Reducer::begin(std::span<const size_t> places, bool create_graph) {
  const bool within = is_under_way();
  if (!within) pass_ = 0;
  if (options_.deterministic && !create_graph && !replaced_) set_apart(places);
  if (!reduces_ || replaced_) return;
  ARETE_CHECK(!create_graph,
              AutogradError("backward",
                            "gradients that were reduced over processes have no history, "
                            "so create_graph=True is not possible here")
                  .hint("use autograd.grad() for gradients that are differentiated again"));
  ARETE_CHECK(!within, AutogradError("backward",
                                     "a backward pass within another one reaches parameters of "
                                     "the same DistributedDataParallel"));
  check_static(places);
  start(places);
  pass_ = autograd::passes_under_way().back();
  autograd::at_end_of_pass([self = shared_from_this()] { self->finish(); });
  launch_ready();
}

void Reducer::check_static(std::span<const size_t> places) {
  if (!options_.static_graph) return;
  std::vector<char> reached(parameters_.size());
  for (const size_t p : places) reached[p] = true;
  if (!reached_) reached_ = reached;
  for (size_t p = 0; p < reached.size(); ++p)
    ARETE_CHECK(reached[p] == (*reached_)[p],
                ValueError("DistributedDataParallel", "static_graph=True, but " + name_of(p) +
                                                          " was " + ((*reached_)[p] ? "" : "not ") +
                                                          "used in the first iteration and is " +
                                                          (reached[p] ? "" : "not ") + "now"));
}

void Reducer::start(std::span<const size_t> places) {
  std::ranges::fill(expected_, char(false));
  order_.clear();
  next_ = 0;
  for (Bucket& b : buckets_) {
    b.missing = 0;
    b.work = b.had_work = nullptr;
    b.result = nullptr;
    b.parts = Tensor();
  }
  for (const size_t p : places) {
    expected_[p] = true;
    if (!stays_sparse(p)) ++buckets_[where_[p].first].missing;
  }
}

// Their gradients become those of this pass alone, until they are ready.
void Reducer::set_apart(std::span<const size_t> places) {
  ARETE_CHECK(std::ranges::none_of(sums_, &Sums::apart),
              AutogradError("backward",
                            "with deterministic=True a backward pass within another one cannot "
                            "reach parameters of the same DistributedDataParallel"));
  sums_.resize(parameters_.size());
  for (const size_t p : places) {
    Sums& sums = sums_[p];
    const Tensor grad = parameters_[p].grad();
    if (!grad.defined())
      sums = {};
    else if (!sums.shown.defined() || !grad.is_same(sums.shown) || grad.version() != sums.version)
      sums = {.trees = {{kBefore, grad}}};
    sums.apart = true;
    sums.shown = Tensor();
    parameters_[p].set_grad(Tensor());
  }
  // Those whose gradients do not come after all have what they had, however the pass ends.
  struct End {
    std::shared_ptr<Reducer> reducer;
    void restore() {
      if (const auto r = std::exchange(reducer, nullptr))
        for (size_t p = 0; p < r->sums_.size(); ++p)
          if (r->sums_[p].apart) r->sums_[p].show(r->parameters_[p]);
    }
    ~End() {
      try {
        restore();
      } catch (...) {
        // The error that ended the pass is on its way.
      }
    }
  };
  autograd::at_end_of_pass([end = std::make_shared<End>(shared_from_this())] { end->restore(); });
}

void Reducer::Sums::show(const Tensor& leaf) {
  apart = false;
  shown = Tensor();
  for (size_t i = trees.size(); i-- > 0;)
    shown = shown.defined() ? trees[i].second + shown : trees[i].second;
  version = shown.defined() ? shown.version() : 0;
  leaf.set_grad(shown);
}

void Reducer::add_sums(size_t place) {
  const NoGradGuard no_grad;
  Sums& sums = sums_[place];
  Tensor sum = parameters_[place].grad();
  int depth = 0;
  while (sum.defined() && !sums.trees.empty() && sums.trees.back().first == depth) {
    sum = sums.trees.back().second + sum;
    sums.trees.pop_back();
    ++depth;
  }
  if (sum.defined()) sums.trees.emplace_back(depth, std::move(sum));
  sums.show(parameters_[place]);
}

void Reducer::ready(size_t place) {
  const bool sparse = stays_sparse(place);
  // In a bucket all rows are exchanged: those that one process has used, others have not.
  if (const Tensor g = parameters_[place].grad(); !sparse && g.defined() && is_sparse(g))
    parameters_[place].set_grad(ops::dense_of(g));
  has_grad_[place] = true;
  if (!sums_.empty() && sums_[place].apart) add_sums(place);
  if (pass_ == 0 || !expected_[place]) return;
  expected_[place] = false;
  if (sparse) return;
  order_.push_back(place);
  --buckets_[where_[place].first].missing;
  launch_ready();
}

void Reducer::launch_ready() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) launch(next_++);
}

// NCCL takes the factor as an element, which may round it; elsewhere half types are scaled one by
// one on a thread.
bool Reducer::exchange_divides(const Tensor& like) const {
  if (options_.deterministic) return false;
  const DType dtype = like.dtype();
  if (!is_reduced_float(dtype)) return true;
  int exponent;
  return !is_float8(dtype) && group_->uses_nccl(like.device()) &&
         std::frexp(divisor_, &exponent) == 0.5;
}

// Fills the bucket with the gradients of this process.
void Reducer::pack(Bucket& bucket) {
  const size_t n = bucket.places.size();
  const Tensor& first = parameters_[bucket.places[0]];
  const auto own = [&](size_t i) {
    const Tensor g = parameters_[bucket.places[i]].grad();
    return g.defined() && g.is_same(bucket.views[i]);
  };
  if (bucket.memory.defined() && !options_.keep_memory) {
    // Gradients in their place are as they should be; views that are none, or of which there are
    // more views, belong to somebody else. A call that is under way has the memory, too, and so
    // have those that are put off.
    const Storage& memory = *bucket.memory.storage();
    ops::wait_to_write(memory);
    const prim::Capture* const capture = prim::putting_off();
    const size_t put_off = capture ? capture->handles_of(memory) : 0;
    bool kept = size_t(memory.use_count()) > 3 + n + put_off;
    for (size_t i = 0; i < n && !kept; ++i) kept = !own(i) && is_kept_by_others(bucket.views[i]);
    if (kept) bucket.memory = Tensor();
  }
  std::vector<Tensor> before;  // gradients in the memory that is left
  if (!bucket.memory.defined()) {
    before = std::move(bucket.views);
    bucket.views.clear();
    int64_t numel = 0;
    for (const size_t p : bucket.places) numel += parameters_[p].numel();
    bucket.memory = ops::empty_tensor({numel + int64_t(n)}, first.dtype(), first.device());
    bucket.buffer = ops::alias(bucket.memory, Layout({numel}));
    Layout rest = Layout({int64_t(n)});
    rest.offset = numel;
    bucket.had = ops::alias(bucket.memory, std::move(rest));
    int64_t offset = 0;
    for (const size_t p : bucket.places) {
      bucket.views.push_back(view_in(bucket.memory, parameters_[p], offset));
      offset += parameters_[p].numel();
    }
    if (!bucket.ones.defined()) bucket.ones = arete::ones({int64_t(n)}, bucket.memory.options());
  }
  const double scale = hook_ || exchange_divides(first) ? 1 : 1 / divisor_;
  std::vector<Tensor> in, out;
  bool all = true;
  for (size_t i = 0; i < n; ++i) {
    const size_t p = bucket.places[i];
    Tensor& view = bucket.views[i];
    const Tensor g = shadows_ ? Tensor() : parameters_[p].grad();
    all = all && g.defined() && has_grad_[p];
    if (!g.defined()) {
      view.zero_();
      continue;
    }
    ARETE_CHECK(g.dtype() == view.dtype() && g.device() == view.device() &&
                    g.layout().sizes == view.layout().sizes,
                ValueError("DistributedDataParallel",
                           name_of(p) + " was given another dtype, device or shape; convert the "
                                        "module before it is wrapped"));
    if (g.numel() == 0 || (scale == 1 && g.is_same(view))) continue;
    in.push_back(g);
    out.push_back(view);
  }
  Tensor had = bucket.ones;
  if (!all) {
    std::vector<float> numbers(n);
    for (size_t i = 0; i < n; ++i) {
      const size_t p = bucket.places[i];
      numbers[i] = !shadows_ && has_grad_[p] && parameters_[p].grad().defined();
    }
    had = tensor(numbers).to(bucket.memory.options());
  }
  in.push_back(had);
  out.push_back(bucket.had);
  if (scale == 1)
    ops::foreach_copy(out, in, false);
  else
    pack_scaled(in, out, scale);
}

void Reducer::launch(size_t index) {
  const NoGradGuard no_grad;
  Bucket& bucket = buckets_[index];
  const CallLabel label(bucket.label);
  pack(bucket);
  if (options_.deterministic) {
    exchange_parts(bucket);
    if (index > 0) sum_parts(buckets_[index - 1]);
    return;
  }
  if (!hook_) {
    const ReduceOp mean(prim::ReduceKind::premul_sum, 1 / divisor_);
    const bool divides = divisor_ != 1 && exchange_divides(bucket.memory);
    bucket.work = group_->all_reduce(bucket.memory, divides ? mean : kSum, true);
    return;
  }
  bucket.had_work = group_->all_reduce(bucket.had, kSum, true);
  GradBucket given{.index = index,
                   .is_last = index + 1 == buckets_.size(),
                   .buffer = bucket.buffer,
                   .gradients = bucket.views};
  for (const size_t p : bucket.places) given.parameters.push_back(parameters_[p]);
  bucket.result = hook_(given);
}

// Each process gets its part of all processes' gradients.
void Reducer::exchange_parts(Bucket& bucket) {
  if (group_->size() == 1) return;
  const std::vector<Tensor> in = tensor_split(bucket.memory, group_->size());
  const int64_t own = in[size_t(group_->rank())].numel();
  bucket.parts =
      ops::empty_tensor({group_->size(), own}, bucket.memory.dtype(), bucket.memory.device());
  bucket.work = group_->all_to_all(bucket.parts.unbind(), in, true);
}

// Adds them up, and everybody gets the sums.
void Reducer::sum_parts(Bucket& bucket) {
  if (!bucket.parts.defined()) return;
  const CallLabel label(bucket.label);
  std::exchange(bucket.work, nullptr)->wait();
  const Tensor parts = std::exchange(bucket.parts, Tensor());
  const int64_t n = parts.size(0), own = parts.size(1);
  for (int64_t step = 1; step < n; step *= 2) {
    const int64_t pairs = (n - step + 2 * step - 1) / (2 * step);
    Layout to({pairs, own}, {2 * step * own, 1}, 0), from = to;
    from.offset = step * own;
    ops::alias(parts, std::move(to)).add_(ops::alias(parts, std::move(from)));
  }
  bucket.work = group_->all_gather(tensor_split(bucket.memory, n), parts[0], true);
}

// Forgets the pass, however it ends.
struct Reducer::Ended {
  Reducer& reducer;
  ~Ended() { reducer.pass_ = 0; }
};

void Reducer::finish() {
  const NoGradGuard no_grad;
  const Ended ended{*this};
  while (next_ < buckets_.size()) launch(next_++);  // gradients that did not come after all
  if (!buckets_.empty()) sum_parts(buckets_.back());
  for (Bucket& b : buckets_) take(b);
  exchange_sparse();
  if (!shadows_) std::ranges::fill(has_grad_, char(false));
  if (rebuilt_ == 0) agree_on_order();
  if (after_ && !shadows_) after_();
}

// Waits for a bucket and gives its gradients to the parameters.
void Reducer::take(Bucket& bucket) {
  for (WorkPtr* work : {&bucket.work, &bucket.had_work})
    if (*work) std::exchange(*work, nullptr)->wait_unless_readers_do();
  if (bucket.result) {
    const Tensor result = std::exchange(bucket.result, nullptr)();
    ARETE_CHECK(result.defined() && result.numel() == bucket.buffer.numel(),
                ValueError("DistributedDataParallel",
                           "a communication hook must give as many elements as the bucket has"));
    if (!result.is_same(bucket.buffer)) bucket.buffer.copy_(result.reshape({-1}));
  }
  if (shadows_) return;
  std::vector<float> had;
  for (size_t i = 0; i < bucket.places.size(); ++i) {
    const size_t p = bucket.places[i];
    if (!has_grad_[p] || !parameters_[p].grad().defined()) {
      if (had.empty()) had = bucket.had.to(kCPU, kFloat32).to_vector<float>();
      if (had[i] == 0) continue;
    }
    parameters_[p].set_grad(bucket.views[i]);
  }
}

// The gradients of tables, row by row: of those that some process has used.
void Reducer::exchange_sparse() {
  if (options_.sparse.empty() || !stays_sparse(options_.sparse[0])) return;
  const auto own = [&](size_t p) {
    return shadows_ || !has_grad_[p] ? Tensor() : parameters_[p].grad();
  };
  std::vector<float> had;
  for (const size_t p : options_.sparse) had.push_back(own(p).defined());
  Tensor any = tensor(had).to(parameters_[options_.sparse[0]].device());
  group_->all_reduce(any, kMax);
  had = any.to(kCPU, kFloat32).to_vector<float>();
  for (size_t i = 0; i < had.size(); ++i) {
    if (had[i] == 0) continue;
    const size_t p = options_.sparse[i];
    const Tensor& table = parameters_[p];
    const Tensor g = own(p);
    const int64_t rows = !g.defined() ? 0 : table.size(0);
    Tensor sum = g.defined() && is_sparse(g)
                     ? ops::with_values(g, sparse_parts(g)->values)
                     : sparse_tensor({arange(rows, {kInt64, table.device()}).reshape({1, rows}),
                                      g.defined() ? g : table.detach().narrow(0, 0, 0)},
                                     table.sizes());
    const CallLabel label(std::make_shared<const std::string>("DDP sparse " + name_of(p)));
    group_->all_reduce(sum);
    if (!shadows_) table.set_grad(ops::with_values(sum, sparse_parts(sum)->values / divisor_));
  }
}

void Reducer::agree_on_order() {
  ++rebuilt_;
  std::vector<char> seen(parameters_.size());
  std::vector<int64_t> order(order_.begin(), order_.end());
  for (const int64_t p : order) seen[size_t(p)] = true;
  for (size_t p = parameters_.size(); p-- > 0;)
    if (!seen[p]) order.push_back(int64_t(p));
  const compile::MadeAtOnce now;  // everybody waits for it, once
  Tensor shared = tensor(order).to(parameters_[0].device());
  group_->broadcast(shared, 0);
  order = shared.cpu().to_vector<int64_t>();
  const std::vector<size_t> positions(order.begin(), order.end());
  std::vector<Bucket> old = std::move(buckets_);
  make_buckets(positions);
  // Buckets that stay as they were keep their memory, and gradients their addresses.
  for (Bucket& b : buckets_)
    for (Bucket& o : old)
      if (b.places == o.places) {
        o.label = std::move(b.label);
        b = std::move(o);
        break;
      }
}

void Reducer::shadow() {
  ARETE_CHECK(!is_under_way(), ValueError("Reducer", "a backward pass is under way"));
  pass_ = 0;
  shadows_ = true;
  struct Ended {
    bool& shadows;
    ~Ended() { shadows = false; }
  } ended{shadows_};
  const NoGradGuard no_grad;
  start({});
  launch_ready();
  finish();
}

}  // namespace arete::distributed
