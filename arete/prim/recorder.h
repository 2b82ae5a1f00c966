// Calls written down while they run, to be run again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "arete/core/history.h"
#include "arete/prim/kept.h"

namespace arete::prim {

/// Where primitive calls go instead of to the backends, while Modes::capture points at it.
class Capture {
 public:
  virtual ~Capture() = default;
  /// Takes the calls for a device.
  virtual Primitives& on(Device device) = 0;
  /// Who owes memory the values that calls taken here will write; null: they are made at once.
  virtual const Promiser* promiser() const { return nullptr; }
  /// Who sees to the passes over history that is recorded meanwhile; null: nobody.
  virtual std::shared_ptr<PassKeeper> keeper() { return nullptr; }
  /// Makes the calls that were put off so far.
  virtual void make_calls() {}
  /// The same, since what comes next cannot be put off; an error where values may not be looked at.
  virtual void make_calls_for(const char* /*what*/) {}
  /// Puts an effect off, too; false: calls are not put off, and it was not made.
  virtual bool take(Device /*device*/, const EffectArgs&) { return false; }
  /// Whether an effect that is put off writes to the memory.
  virtual bool has_effect_on(const Storage&) const { return false; }
  /// Memory that has no place is a promise from now on, as new_storage() gives them.
  virtual void promise(Storage&) {}
  /// Calls so far keep what a promise holds for them alone; for others it has no place any more.
  /// False if it has one already, or is nobody's promise.
  virtual bool let_go(Storage&) { return false; }
  /// How many of the handles of the memory belong to calls that are put off, or were.
  virtual size_t handles_of(const Storage&) const { return 0; }
  /// An operator looks at values of its arguments on the host, where they are.
  virtual void note_look() noexcept {}
  /// The host waited so many seconds for a device.
  virtual void waited(double /*seconds*/) noexcept {}
};

/// Makes the calls that the thread has put off, if it does so: before anything else is given to a
/// device that has to come after them.
inline void make_calls_of_thread() {
  if (modes().word & Modes::kPutOff) [[unlikely]]
    modes().capture->make_calls();
}

/// Whose calls the thread puts off; null: it does not.
inline Capture* putting_off() { return modes().word & Modes::kPutOff ? modes().capture : nullptr; }

/// Makes a stream the device's current one while it lives.
class StreamScope {
 public:
  StreamScope(Backend& backend, StreamHandle stream)
      : backend_(backend), before_(backend.current_stream()) {
    if (stream != before_) backend_.set_current_stream(stream);
  }
  ~StreamScope() {
    if (backend_.current_stream() != before_) backend_.set_current_stream(before_);
  }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Backend& backend_;
  StreamHandle before_;
};

/// One call, with everything it was made of.
class RecordedCall {
 public:
  virtual ~RecordedCall() = default;
  virtual Primitive primitive() const = 0;
  /// That of the primitive, or of the effect.
  virtual const char* name() const = 0;
  Device device() const { return device_; }
  /// The stream of the device that it was recorded on.
  virtual StreamHandle stream() const = 0;
  /// Its numbers that a replay can take from memory (Note [Numbers that change] in slots.h).
  virtual std::vector<Number> numbers() const = 0;
  /// What it was called with: a PointwiseArgs where primitive() is pointwise, and so on.
  virtual const void* args() const = 0;
  /// Calls f(view, access) for every operand that is there: it may be given another address.
  virtual void for_each_operand(const std::function<void(View&, Access)>& f) = 0;
  /// Calls f(address) for every number that may differ between calls which are otherwise the same:
  /// 64 bits each, in an order of the kind of call, which may be replaced at any time.
  virtual void for_each_number(const std::function<void(void*)>& f) = 0;
  virtual std::unique_ptr<RecordedCall> clone() const = 0;
  /// From now on the number of that position in numbers() is read from memory of the device.
  virtual void put_in_memory(size_t number, const View& value) = 0;
  /// Gives a random call its state; others have none.
  virtual void put_random_state(const View& state) = 0;
  /// Runs it on the backend of its device and the current stream; gives what `compact` returns.
  int64_t run_once() const;
  /// The same, but what an effect gives is to be waited for (Note [Effects]); null for others.
  virtual std::shared_ptr<PendingCopy> start(bool at_once) const = 0;
  /// Runs it again, on the stream that it was recorded on. Versions of what it writes go up.
  void run_again() const;
  /// "gemm(float32[2, 3], float32[3, 4] -> float32[2, 4])".
  virtual std::string to_string() const = 0;

 protected:
  explicit RecordedCall(Device device) : device_(device) {}
  virtual int64_t run(Primitives& on) const = 0;

 private:
  Device device_;
};

/// A call that was not made, as if it had been recorded on `device`; on the stream of its context.
#define ARETE_AS_RECORDED(name, Args) \
  std::unique_ptr<RecordedCall> as_recorded(Device device, const Args& args);
ARETE_PRIMITIVES(ARETE_AS_RECORDED)
ARETE_AS_RECORDED(effect, EffectArgs)
#undef ARETE_AS_RECORDED

/// A capture that runs what it writes down. The calls can be replayed: all operands' memory is kept
/// alive at its addresses, that of temporaries, too. Not thread-safe.
class Recorder final : public Capture {
 public:
  Recorder();
  ~Recorder() override;
  Primitives& on(Device device) override;

  /// Memory that calls used, or that was allocated meanwhile.
  struct Memory {
    StoragePtr storage;
    bool made = false;  // while recording
    bool used = false;
    bool filled_by_host = false;
  };

  const std::vector<std::unique_ptr<RecordedCall>>& calls() const { return calls_; }
  /// Hands over the calls and the memory, and has none any more.
  std::vector<std::unique_ptr<RecordedCall>> take_calls();
  std::unordered_map<const Storage*, Memory> take_memory();
  /// From now on replays take the number of a call from memory of its device: one element of the
  /// number's dtype, which is kept alive.
  void put_in_memory(size_t call, size_t number, const View& value);
  /// From now on replays of random calls on the state's device draw other numbers: RandomArgs says
  /// how two i64 move them. Without it they draw the same again.
  void put_random_state(const View& state);
  /// The memory of results and temporaries: allocated meanwhile, and first used by a call that
  /// wrote it. A replay reads none of the values that it holds now. (Memory that was read first was
  /// filled by the host; it stays as it is.)
  std::vector<StoragePtr> results() const;
  /// Runs all calls again, in order, each on the stream that it was recorded on: what memory they
  /// only read may hold other values by now. Versions of what is written go up.
  void replay() const;
  /// The calls, a line each.
  std::string to_string() const;

 private:
  class Tee;
  Memory& keep(const Storage* storage);

  std::vector<std::unique_ptr<Tee>> tees_;
  std::vector<std::unique_ptr<RecordedCall>> calls_;
  std::unordered_map<const Storage*, Memory> memory_;
};

}  // namespace arete::prim
