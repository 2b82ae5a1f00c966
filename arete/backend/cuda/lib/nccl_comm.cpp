#include "arete/backend/cuda/lib/nccl_comm.h"

#include <algorithm>
#include <complex>
#include <condition_variable>
#include <functional>
#include <thread>
#include <vector>

#include "arete/base/distributed_error.h"

namespace arete::cuda {
namespace {

using prim::CollectiveArgs;
using prim::CollectiveKind;
using prim::ReduceKind;
using prim::View;
using Clock = std::chrono::steady_clock;

size_t bytes_of(const View& v) { return size_t(v.numel()) * size_of(v.dtype); }

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
         kind == CollectiveKind::reduce_scatter;
}

// Parts of one size, one after the other. All ranks know all sizes; that equal parts follow each
// other is up to the caller.
bool is_one_message(std::span<const View> parts) {
  return std::ranges::all_of(parts, [&](const View& v) { return v.numel() == parts[0].numel(); });
}

TypeError refused(const CollectiveArgs& a, const char* why) {
  return TypeError(prim::name_of(a.kind), why)
      .got(std::string(prim::name_of(a.reduce)) + " of " + std::string(name_of(a.in[0].dtype)));
}

// Note [The end of a communicator]
// ncclCommAbort, and rarely ncclCommDestroy, may wait for what never comes: for processes that are
// gone, for graphs that still have its calls. So a thread of its own does it, and after a while
// nobody waits for that any more. It then has all it needs, and ends when it may or with the
// process.
void within(std::chrono::milliseconds most, std::function<void()> f) noexcept try {
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, f = std::move(f)] {
    f();
    const std::lock_guard lock(state->mutex);
    state->done = true;
    state->ended.notify_all();
  }).detach();
  std::unique_lock lock(state->mutex);
  state->ended.wait_for(lock, most, [&] { return state->done; });
} catch (...) {
  // Without a thread it stays, until the process ends.
}

nccl::Result wait_for(const Nccl& library, nccl::Comm comm, nccl::Result r,
                      Clock::time_point until) {
  while (r == nccl::kInProgress && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    library.async_error(comm, &r);
  }
  return r;
}

constexpr std::chrono::seconds kAbortTime(1), kEndTime(5);

}  // namespace

// Note [Calls that block]
// A communicator that does not block gives each call to a thread that the library makes for it:
// 59 us, where one that does takes 23 (4 bytes on two H100). So ours block. Who does not come is
// noticed while they are made, since a thread of its own does that, and later by whoever watches
// the calls, whose abort() ends the one that waits.
NcclComm::NcclComm(const Nccl& library, const nccl::UniqueId& id, int rank, int size,
                   bool adds_float8, std::chrono::milliseconds timeout,
                   std::function<void()> enter_device)
    : nccl_(library),
      rank_(rank),
      size_(size),
      adds_float8_(adds_float8 && library.version >= 22400),
      timeout_(timeout) {
  struct Joining {
    std::mutex mutex;
    nccl::Comm comm = nullptr;
    nccl::Result result = nccl::kInProgress;
    std::exception_ptr error;
    bool abandoned = false;
  };
  const auto joining = std::make_shared<Joining>();
  const auto until = Clock::now() + timeout;
  within(timeout + kAbortTime,
         [joining, &library, id, rank, size, until, enter = std::move(enter_device)] {
           nccl::Config config;
           config.blocking = 1;
           nccl::Comm comm = nullptr;
           nccl::Result r = nccl::kInProgress;
           std::exception_ptr error;
           try {
             enter();
             r = library.init_rank(&comm, size, id, rank, &config);
             if (r == nccl::kInProgress) r = wait_for(library, comm, r, until);
           } catch (...) {
             error = std::current_exception();
           }
           const std::lock_guard lock(joining->mutex);
           joining->result = r, joining->error = error;
           if (!joining->abandoned && r == nccl::kSuccess)
             joining->comm = comm;
           else if (comm)
             library.abort(comm);
         });
  const std::lock_guard lock(joining->mutex);
  if (joining->error) std::rethrow_exception(joining->error);
  comm_ = joining->comm;
  if (comm_) return;
  joining->abandoned = true;
  if (joining->result != nccl::kInProgress) fail(joining->result, "init_process_group");
  throw DistributedError(
      DistributedError::Failure::backend, "init_process_group",
      "NCCL did not connect all ranks within " + std::to_string(timeout.count()) + " ms");
}

NcclComm::~NcclComm() {
  if (!comm_) return;
  within(kEndTime, [&library = nccl_, comm = comm_.load()] {
    nccl::Result r = library.finalize(comm);
    r = wait_for(library, comm, r, Clock::now() + kEndTime);
    if (r == nccl::kSuccess)
      library.destroy(comm);
    else
      library.abort(comm);
  });
}

void NcclComm::abort() noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  // Who has it may be in a call that only this ends.
  (void)lock.try_lock_for(kAbortTime);
  if (const nccl::Comm comm = comm_.exchange(nullptr))
    within(kAbortTime, [&library = nccl_, comm] { library.abort(comm); });
}

void NcclComm::fail(nccl::Result r, const char* what) const {
  const char* const last = nccl_.last_error(comm_);
  std::string text = std::string("NCCL failed: ") + nccl_.error_string(r);
  if (last && *last) text += ": " + std::string(last);
  throw DistributedError(DistributedError::Failure::backend, what, text,
                         "NCCL_DEBUG=WARN in the environment makes it say more");
}

std::string NcclComm::problem() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const nccl::Comm comm = lock ? comm_.load() : nullptr;
  if (!comm) return "";
  nccl::Result r = nccl::kSuccess;
  if (nccl_.async_error(comm, &r) != nccl::kSuccess || r == nccl::kSuccess ||
      r == nccl::kInProgress)
    return "";
  try {
    fail(r, "");
  } catch (const DistributedError& e) {
    return e.what();
  }
}

void NcclComm::finish(std::unique_lock<std::timed_mutex>& lock, nccl::Result r, const char* what) {
  const auto until = Clock::now() + timeout_;
  const auto comm_or_throw = [&] {
    if (const nccl::Comm comm = comm_) return comm;
    throw DistributedError(DistributedError::Failure::backend, what, "the call was ended");
  };
  comm_or_throw();
  while (r == nccl::kInProgress) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    const nccl::Comm comm = comm_or_throw();
    if (const nccl::Result asked = nccl_.async_error(comm, &r); asked != nccl::kSuccess) r = asked;
    if (r == nccl::kInProgress && Clock::now() > until)
      throw DistributedError(
          DistributedError::Failure::backend, what,
          "NCCL did not begin within " + std::to_string(timeout_.count()) + " ms");
  }
  if (r != nccl::kSuccess) fail(r, what);
}

NcclComm::Element NcclComm::element_of(const CollectiveArgs& a) const {
  // Whatever it is, it travels as bytes.
  if (!reduces(a.kind)) return {nccl::kUint8, 1, nccl::kSum, false};
  Element e{nccl::kUint8, 1, nccl::kSum, a.reduce == ReduceKind::premul_sum};
  const DType dtype = a.in[0].dtype;
  switch (a.reduce) {
    case ReduceKind::sum:
    case ReduceKind::premul_sum:
      e.op = nccl::kSum;
      break;
    case ReduceKind::product:
      e.op = nccl::kProd;
      break;
    case ReduceKind::min:
      e.op = nccl::kMin;
      break;
    case ReduceKind::max:
      e.op = nccl::kMax;
      break;
    case ReduceKind::avg:
      e.op = nccl::kAvg;
      break;
    default:
      throw refused(a, "Cannot use ReduceOp.BAND, BOR or BXOR with NCCL");
  }
  switch (dtype) {
    case DType::boolean:
      // Bytes of 0 and 1, whose sum would be no bool.
      if (a.reduce == ReduceKind::avg || e.scales)
        throw refused(a, "Cannot use ReduceOp.AVG with Boolean inputs");
      if (e.op == nccl::kSum) e.op = nccl::kMax;
      return e;
    case DType::u8:
      e.type = nccl::kUint8;
      break;
    case DType::i8:
      e.type = nccl::kInt8;
      break;
    case DType::u32:
      e.type = nccl::kUint32;
      break;
    case DType::u64:
      e.type = nccl::kUint64;
      break;
    case DType::u16:
    case DType::i16:
      throw refused(a, "Input tensor data type is not supported for NCCL process group");
    case DType::i32:
      e.type = nccl::kInt32;
      break;
    case DType::i64:
      e.type = nccl::kInt64;
      break;
    case DType::f16:
      e.type = nccl::kFloat16;
      break;
    case DType::c64:
      e.count = 2;
      [[fallthrough]];
    case DType::f32:
      e.type = nccl::kFloat32;
      break;
    case DType::c128:
      e.count = 2;
      [[fallthrough]];
    case DType::f64:
      e.type = nccl::kFloat64;
      break;
    case DType::bf16:
      e.type = nccl::kBfloat16;
      break;
    case DType::f8e4m3:
    case DType::f8e5m2:
      if (!adds_float8_) throw refused(a, "Unsupported Float8 type for NCCL reduction");
      e.type = dtype == DType::f8e4m3 ? nccl::kFloat8e4m3 : nccl::kFloat8e5m2;
      break;
  }
  if (e.count == 2 && e.op != nccl::kSum && e.op != nccl::kAvg)
    throw refused(a, "all_reduce does not support this reduction on complex tensors");
  if (e.scales && (!(is_floating(dtype) || is_complex(dtype)) || is_float8(dtype)))
    throw refused(a, "PreMulSum Data type must be half, float, bfloat16 or double");
  return e;
}

// Which of the library's functions a call is depends on nothing that ranks may see differently.
nccl::Result NcclComm::put(nccl::Comm comm, const CollectiveArgs& a, const Element& e,
                           void* stream) const {
  const auto count = [&](const View& v) {
    return reduces(a.kind) ? size_t(v.numel()) * size_t(e.count) : bytes_of(v);
  };
  nccl::Result result = nccl::kSuccess;
  const auto add = [&](nccl::Result r) {
    if (result == nccl::kSuccess || result == nccl::kInProgress) result = r;
  };
  const auto send = [&](const View& v, int to) {
    if (v.numel() > 0) add(nccl_.send(v.data, bytes_of(v), nccl::kUint8, to, comm, stream));
  };
  const auto recv = [&](const View& v, int from) {
    if (v.numel() > 0) add(nccl_.recv(v.data, bytes_of(v), nccl::kUint8, from, comm, stream));
  };
  const View none;
  const View& in = a.in.empty() ? none : a.in[0];
  const View& out = a.out.empty() ? none : a.out[0];
  const bool is_root = rank_ == a.root;
  switch (a.kind) {
    case CollectiveKind::all_reduce:
      if (const size_t n = count(in))
        add(nccl_.all_reduce(in.data, out.data, n, e.type, e.op, comm, stream));
      break;
    case CollectiveKind::reduce:
      if (const size_t n = count(in))
        add(nccl_.reduce(in.data, is_root ? out.data : in.data, n, e.type, e.op, a.root, comm,
                         stream));
      break;
    case CollectiveKind::broadcast:
      if (const size_t n = count(out))
        add(nccl_.broadcast(out.data, out.data, n, e.type, a.root, comm, stream));
      break;
    case CollectiveKind::all_gather:
      if (is_one_message(a.out)) {
        if (const size_t n = count(in))
          add(nccl_.all_gather(in.data, out.data, n, e.type, comm, stream));
        break;
      }
      for (int r = 0; r < size_; ++r)
        if (const size_t n = count(a.out[r]))
          add(nccl_.broadcast(r == rank_ ? in.data : a.out[r].data, a.out[r].data, n, e.type, r,
                              comm, stream));
      break;
    case CollectiveKind::reduce_scatter:
      if (is_one_message(a.in)) {
        if (const size_t n = count(out))
          add(nccl_.reduce_scatter(in.data, out.data, n, e.type, e.op, comm, stream));
        break;
      }
      for (int r = 0; r < size_; ++r)
        if (const size_t n = count(a.in[r]))
          add(nccl_.reduce(a.in[r].data, r == rank_ ? out.data : a.in[r].data, n, e.type, e.op, r,
                           comm, stream));
      break;
    case CollectiveKind::all_to_all:
      for (int r = 0; r < size_; ++r) {
        send(a.in[r], r);
        recv(a.out[r], r);
      }
      break;
    case CollectiveKind::gather:
      send(in, a.root);
      for (int r = 0; r < size_ && is_root; ++r) recv(a.out[r], r);
      break;
    case CollectiveKind::scatter:
      for (int r = 0; r < size_ && is_root; ++r) send(a.in[r], r);
      recv(out, a.root);
      break;
    case CollectiveKind::send:
      send(in, a.root);
      break;
    case CollectiveKind::recv:
      recv(out, a.root);
      break;
    case CollectiveKind::barrier:
      ARETE_BUG("a barrier is a reduction of one number");
  }
  return result;
}

void NcclComm::run(std::span<const CollectiveArgs> calls, void* stream) {
  std::vector<Element> elements;
  for (const CollectiveArgs& a : calls) elements.push_back(element_of(a));
  const char* const what = calls.empty() ? "" : prim::name_of(calls[0].kind);
  std::unique_lock lock(mutex_);
  // An abort() that does not get the lock takes comm_ from us.
  const nccl::Comm comm = comm_;
  if (!comm)
    throw DistributedError(DistributedError::Failure::backend, what,
                           "the group was ended, or has failed before");
  struct Made {
    const NcclComm& self;
    const nccl::Comm comm;
    std::vector<nccl::Op> ops = {};
    ~Made() {
      // An abort has freed them.
      for (const nccl::Op op : ops)
        if (self.comm_ == comm) self.nccl_.destroy_op(op, comm);
    }
  } made{*this, comm};
  nccl::Result r = nccl::kSuccess;
  const auto failed = [&] { return r != nccl::kSuccess && r != nccl::kInProgress; };
  for (size_t i = 0; i < calls.size() && !failed(); ++i) {
    if (!elements[i].scales) continue;
    // On the host, in the type of the elements.
    union {
      Half f16;
      BFloat16 bf16;
      float f32;
      double f64;
    } factor{.f64 = calls[i].factor};
    const auto scalar = float(calls[i].factor);
    if (elements[i].type == nccl::kFloat16) factor.f16 = Half(scalar);
    if (elements[i].type == nccl::kBfloat16) factor.bf16 = BFloat16(scalar);
    if (elements[i].type == nccl::kFloat32) factor.f32 = scalar;
    constexpr int kHostImmediate = 1;
    r = nccl_.create_premul_sum(&elements[i].op, &factor, elements[i].type, kHostImmediate, comm);
    if (!failed()) made.ops.push_back(elements[i].op);
  }
  if (!failed()) r = nccl_.group_start();
  if (!failed()) {
    nccl::Result first = nccl::kSuccess;
    for (size_t i = 0; i < calls.size() && (r == nccl::kSuccess || r == nccl::kInProgress); ++i)
      r = put(comm, calls[i], elements[i], stream);
    first = r;
    // Also ends the group of calls that were refused.
    r = nccl_.group_end();
    if (first != nccl::kSuccess && first != nccl::kInProgress) r = first;
  }
  finish(lock, r, what);
}

}  // namespace arete::cuda
