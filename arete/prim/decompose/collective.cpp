// Calls of whole groups, made of the few that a communicator has.
#include <algorithm>
#include <cstring>
#include <vector>

#include "arete/base/distributed_error.h"
#include "arete/core/complex.h"
#include "arete/prim/communicator.h"

namespace arete::prim {
namespace {

constexpr uint32_t kTag = kFirstOwnTag;

size_t bytes_of(const View& v) { return size_t(v.numel()) * size_of(v.dtype); }

void copy_bytes(const View& to, const View& from) {
  if (to.data != from.data && bytes_of(from) > 0) std::memmove(to.data, from.data, bytes_of(from));
}

// Memory like that of a view.
class Copy {
 public:
  explicit Copy(const View& like)
      : bytes_(std::max<size_t>(bytes_of(like), 1)),
        view_(bytes_.data(), like.dtype, like.sizes, like.strides) {}
  const View& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  View view_;
};

template <class T>
void scale_elements(const View& v, double factor) {
  T* const x = v.as<T>();
  const int64_t n = v.numel();
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      x[i] = T(float(x[i]) * float(factor));
    else if constexpr (!std::is_integral_v<T> && requires { x[i] *= T(factor); })
      x[i] *= T(factor);
  }
}

void scale(const View& v, double factor) {
  visit_dtype(v.dtype, [&](auto tag) { scale_elements<typename decltype(tag)::type>(v, factor); });
}

class Exchange {
 public:
  Exchange(Communicator& c, std::chrono::milliseconds timeout) : c_(c), timeout_(timeout) {}
  void send(const View& v, int to) {
    if (bytes_of(v) > 0) transfers_.push_back(c_.send(v, to, kTag));
  }
  void recv(const View& v, int from) {
    if (bytes_of(v) > 0) transfers_.push_back(c_.recv(v, from, kTag));
  }
  void finish() {
    for (auto& t : transfers_) t->wait(timeout_);
    transfers_.clear();
  }

 private:
  Communicator& c_;
  std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

// out = the reduction of every rank's part for this one, in the order of ranks: the same bits
// whoever computes them. One message at a time, so that there is one buffer for them; another one
// gathers the result, since `out` may still be read by messages to others.
void reduce_parts(Communicator& c, const CollectiveArgs& args, std::span<const View> parts,
                  const View& out) {
  const ReduceFunction f = reduce_function(args.reduce, out.dtype);
  const int rank = c.rank(), size = c.size();
  Exchange sent(c, args.timeout);
  for (int step = 1; step < size; ++step)
    sent.send(parts[(rank + step) % size], (rank + step) % size);
  const Copy other(out), sum(out);
  for (int from = 0; from < size; ++from) {
    Exchange received(c, args.timeout);
    if (from != rank) received.recv(other.view(), from);
    received.finish();
    const View& part = from == rank ? parts[rank] : other.view();
    if (from == 0)
      copy_bytes(sum.view(), part);
    else
      f(sum.view().data, sum.view().data, part.data, size_t(out.numel()));
  }
  sent.finish();
  copy_bytes(out, sum.view());
}

void all_gather(Communicator& c, const CollectiveArgs& args) {
  Exchange exchange(c, args.timeout);
  for (int r = 0; r < c.size(); ++r)
    if (r != c.rank()) exchange.recv(args.out[r], r);
  for (int step = 1; step < c.size(); ++step)
    exchange.send(args.in[0], (c.rank() + step) % c.size());
  copy_bytes(args.out[c.rank()], args.in[0]);
  exchange.finish();
}

void decompose(Communicator& c, const CollectiveArgs& args) {
  const int rank = c.rank(), size = c.size();
  const bool is_root = rank == args.root;
  Exchange exchange(c, args.timeout);
  switch (args.kind) {
    case CollectiveKind::all_reduce: {
      const std::vector<View> parts(size, args.in[0]);
      return reduce_parts(c, args, parts, args.out[0]);
    }
    case CollectiveKind::all_gather:
      return all_gather(c, args);
    case CollectiveKind::broadcast:
      for (int r = 0; r < size && is_root; ++r)
        if (r != rank) exchange.send(args.out[0], r);
      if (!is_root) exchange.recv(args.out[0], args.root);
      return exchange.finish();
    case CollectiveKind::reduce_scatter:
      return reduce_parts(c, args, args.in, args.out[0]);
    case CollectiveKind::all_to_all:
      for (int r = 0; r < size; ++r)
        if (r != rank) exchange.recv(args.out[r], r);
      for (int step = 1; step < size; ++step)
        exchange.send(args.in[(rank + step) % size], (rank + step) % size);
      copy_bytes(args.out[rank], args.in[rank]);
      return exchange.finish();
    case CollectiveKind::gather:
      if (!is_root) exchange.send(args.in[0], args.root);
      for (int r = 0; r < size && is_root; ++r) {
        if (r != rank)
          exchange.recv(args.out[r], r);
        else
          copy_bytes(args.out[r], args.in[0]);
      }
      return exchange.finish();
    case CollectiveKind::scatter:
      if (!is_root) exchange.recv(args.out[0], args.root);
      for (int r = 0; r < size && is_root; ++r) {
        if (r != rank)
          exchange.send(args.in[r], r);
        else
          copy_bytes(args.out[0], args.in[r]);
      }
      return exchange.finish();
    case CollectiveKind::reduce: {
      CollectiveArgs all = args;
      all.kind = CollectiveKind::all_reduce;
      if (is_root) return run_collective(c, all);
      const Copy unused(args.in[0]);
      all.out = {&unused.view(), 1};
      return run_collective(c, all);
    }
    case CollectiveKind::barrier: {
      std::byte byte{};
      const int64_t one = 1;
      const View v(&byte, kUInt8, {&one, 1}, {&one, 1});
      CollectiveArgs all = args;
      all.kind = CollectiveKind::all_reduce;
      all.reduce = ReduceKind::max;
      all.in = all.out = {&v, 1};
      return run_collective(c, all);
    }
    case CollectiveKind::send:
    case CollectiveKind::recv:
      ARETE_BUG("a message is no collective");
  }
}

}  // namespace

const char* name_of(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "broadcast", "reduce_scatter",
                                    "all_to_all", "gather",     "scatter",   "reduce",
                                    "barrier",    "send",       "recv"};
  return kNames[int(kind)];
}

void run_collective(Communicator& c, const CollectiveArgs& args) {
  if (c.supports(args)) return c.run(args);
  const bool scales = args.reduce == ReduceKind::avg || args.reduce == ReduceKind::premul_sum;
  if (!scales || args.kind == CollectiveKind::barrier) return decompose(c, args);
  reduce_function(args.reduce, args.in[0].dtype);  // refuses what cannot be scaled
  // A sum, of what is scaled before or after it.
  CollectiveArgs sum = args;
  sum.reduce = ReduceKind::sum;
  if (args.reduce == ReduceKind::avg) {
    run_collective(c, sum);
    if (args.kind != CollectiveKind::reduce || c.rank() == args.root)
      scale(args.out[0], 1.0 / c.size());
    return;
  }
  if (args.kind == CollectiveKind::all_reduce && args.in[0].data == args.out[0].data) {
    scale(args.out[0], args.factor);
    return run_collective(c, sum);
  }
  std::vector<Copy> scaled;
  std::vector<View> views;
  scaled.reserve(args.in.size());
  for (const View& v : args.in) {
    views.push_back(scaled.emplace_back(v).view());
    copy_bytes(views.back(), v);
    scale(views.back(), args.factor);
  }
  sum.in = views;
  run_collective(c, sum);
}

}  // namespace arete::prim
