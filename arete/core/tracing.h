// What the library tells a profiler: calls of operators, backward functions, named ranges, copies
// between devices and waits for them, from every thread of the process. With no listener each of
// these places costs the test of one pointer, and a call nothing: see is_plain. Of memory
// core/memory_events.h tells.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "arete/core/device.h"
#include "arete/core/dtype.h"
#include "arete/core/modes.h"

namespace arete {

class Tensor;
namespace ops {
struct OpRecord;
class Arg;
}  // namespace ops

namespace tracing {

/// What a range that is no operator stands for.
enum class RangeKind : uint8_t { user, backward, optimizer };

/// Bytes on their way between memories, or the host waiting for a device.
struct HostEvent {
  enum class Kind : uint8_t {
    to_host,      ///< a copy from a device to the host
    from_host,    ///< a copy from the host to a device
    peer,         ///< a copy between devices
    synchronize,  ///< a wait without a copy
  };
  Kind kind = Kind::synchronize;
  const char* what = "";  ///< as users call it: "item", "to", "synchronize", ...; lives for good
  Device device;          ///< the device that is not the host (of `peer`: where the bytes arrive)
  size_t bytes = 0;
  bool blocking = true;  ///< the host waits for it
};

/// Arguments of a call, or its results.
template <class T>
struct Items {
  const T* data = nullptr;
  size_t size = 0;
};

/// Hears what it has functions for. Those that begin something return a number, which those that
/// end it are given on the same thread.
class Listener {
 public:
  virtual ~Listener() = default;
  /// It and end_call() of what was called may throw, which the call then does.
  virtual uint64_t begin_call(const ops::OpRecord&, Items<ops::Arg>, bool /*in_place*/) {
    return 0;
  }
  /// Without results the call has failed, and it must not throw.
  virtual void end_call(uint64_t /*id*/, const ops::OpRecord&, Items<ops::Arg>,
                        Items<Tensor> /*results*/) {}
  /// `sequence`: of a backward function, that of its node.
  virtual uint64_t begin_range(RangeKind, std::string_view /*name*/,
                               int64_t /*sequence*/) noexcept {
    return 0;
  }
  virtual void end_range(uint64_t /*id*/) noexcept {}
  virtual uint64_t begin_host_event(const HostEvent&) noexcept { return 0; }
  virtual void end_host_event(uint64_t /*id*/) noexcept {}
};

/// Hears the calls of the thread that made it, while it lives. Listeners of one thread end in the
/// opposite order to that in which they began.
class ThreadListener : public Listener {
 public:
  ThreadListener();
  ~ThreadListener() override;
  ThreadListener(const ThreadListener&) = delete;
  ThreadListener& operator=(const ThreadListener&) = delete;
  /// A call that writes its results into tensors that were given to it.
  virtual uint64_t begin_call_into(const ops::OpRecord& op, Items<ops::Arg> args,
                                   Items<Tensor* const> /*outs*/) {
    return begin_call(op, args, false);
  }
  /// In the place of end_call() where a call has failed.
  virtual void fail_call() noexcept {}
  /// The host looks at values of the tensor, or asks for their address, by which it may write. May
  /// throw.
  virtual void read(const Tensor&, bool /*address*/) {}
  /// A hook is put on the tensor's gradient. May throw.
  virtual void hooked(const Tensor&) {}
  /// `to` is `from` without history, by detach() or .data; or the same tensor, by detach_().
  virtual void detached(const Tensor& /*from*/, const Tensor& /*to*/) noexcept {}
  /// Whether it writes the call that is made now down, to be made again with tensors that lie
  /// otherwise in memory, or have other dtypes: then what is none here may be a copy there.
  virtual bool writes_down() const noexcept { return false; }
  /// The one of this thread that began before it.
  ThreadListener* outer() const { return outer_; }

 private:
  friend class CallScope;
  friend void note_read(const Tensor& t, bool address);
  friend void note_hook(const Tensor& t);
  friend void note_detached(const Tensor& from, const Tensor& to);
  friend bool is_written_down() noexcept;
  ThreadListener* const outer_;
};

/// Tells the thread's listeners of a look at values, or of an address that is given away.
void note_read(const Tensor& t, bool address);
/// Tells them of a hook on its gradient.
void note_hook(const Tensor& t);
/// Tells them of a tensor that lost its history, or of a handle without it.
void note_detached(const Tensor& from, const Tensor& to);
/// Whether one of them writes calls down: see ThreadListener::writes_down().
bool is_written_down() noexcept;

namespace detail {
extern constinit std::atomic<Listener*> current;
extern constinit std::atomic<uint32_t> plain_word;
}  // namespace detail
/// The listener of the process, or null.
inline Listener* listener() noexcept { return detail::current.load(std::memory_order_acquire); }
/// Installs one, which must live as long as the process, or none; returns the one before.
Listener* set_listener(Listener* listener) noexcept;

/// Whether calls of this thread may take the short way: no mode is on and nobody listens. A call
/// compares its thread's word with a word of the process, which is 0 as that of a thread without
/// modes is, and becomes one that no thread ever has while there is a listener: one comparison asks
/// for both.
inline bool is_plain() noexcept {
  return modes().word == detail::plain_word.load(std::memory_order_relaxed);
}

/// Tells of a call while it lives.
class CallScope {
 public:
  CallScope(const ops::OpRecord& op, Items<ops::Arg> args, bool in_place,
            Items<Tensor* const> outs = {})
      : listener_(listener()), op_(op), args_(args) {
    if (listener_) [[unlikely]]
      id_ = listener_->begin_call(op, args, in_place);
    for (ThreadListener* l = of_thread(); l; l = l->outer_)
      outs.size ? l->begin_call_into(op, args, outs) : l->begin_call(op, args, in_place);
  }
  ~CallScope() {
    if (ended_) return;
    if (listener_) [[unlikely]]
      listener_->end_call(id_, op_, args_, {});
    for (ThreadListener* l = of_thread(); l; l = l->outer_) l->fail_call();
  }
  /// The call went well.
  void end(Items<Tensor> results) {
    ended_ = true;
    if (listener_) [[unlikely]]
      listener_->end_call(id_, op_, args_, results);
    for (ThreadListener* l = of_thread(); l; l = l->outer_) l->end_call(0, op_, args_, results);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  static ThreadListener* of_thread() {
    return modes().word & Modes::kObserve ? modes().listener : nullptr;
  }
  Listener* listener_;
  bool ended_ = false;
  uint64_t id_ = 0;
  const ops::OpRecord& op_;
  Items<ops::Arg> args_;
};

/// Tells of a range while it lives.
class RangeScope {
 public:
  /// `name` is a text, or a function that makes it, which is called only if someone listens.
  template <class Name>
  RangeScope(RangeKind kind, const Name& name, int64_t sequence = -1) : listener_(listener()) {
    if (!listener_) [[likely]]
      return;
    if constexpr (requires { name(); })
      id_ = listener_->begin_range(kind, name(), sequence);
    else
      id_ = listener_->begin_range(kind, name, sequence);
  }
  ~RangeScope() {
    if (listener_) [[unlikely]]
      listener_->end_range(id_);
  }
  RangeScope(const RangeScope&) = delete;
  RangeScope& operator=(const RangeScope&) = delete;

 private:
  Listener* listener_;
  uint64_t id_ = 0;
};

/// Tells of a copy or a wait while it lives.
class HostScope {
 public:
  explicit HostScope(const HostEvent& event) : listener_(listener()) {
    if (listener_) [[unlikely]]
      id_ = listener_->begin_host_event(event);
  }
  ~HostScope() {
    if (listener_) [[unlikely]]
      listener_->end_host_event(id_);
  }
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  Listener* listener_;
  uint64_t id_ = 0;
};

/// The name under which a node of the graph runs backward, as PyTorch writes it: "mul" becomes
/// "MulBackward0"; "AccumulateGrad" stays.
std::string backward_name(std::string node_name);

}  // namespace tracing
}  // namespace arete
