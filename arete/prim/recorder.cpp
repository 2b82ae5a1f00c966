#include "arete/prim/recorder.h"

#include <algorithm>
#include <utility>

#include "arete/base/error.h"

namespace arete::prim {

namespace {

template <Primitive P, class Args>
class Call final : public RecordedCall {
 public:
  Call(Device device, const Args& args) : RecordedCall(device), kept_(args) {}
  Primitive primitive() const override { return P; }
  const char* name() const override {
    if constexpr (P == kEffect)
      return kept_.args().effect->name();
    else
      return name_of(P);
  }
  const void* args() const override { return &kept_.args(); }
  void for_each_operand(const std::function<void(View&, Access)>& f) override {
    kept_.for_each_operand(f);
  }
  int64_t run(Primitives& on) const override {
    if constexpr (P == kEffect) {
      if (const auto under_way = start(true)) under_way->wait();
      return 0;
    } else if constexpr (std::is_void_v<ResultOf<P>>) {
      kept_.template run<P>(on);
      return 0;
    } else {
      return kept_.template run<P>(on);
    }
  }
  std::shared_ptr<PendingCopy> start(bool at_once) const override {
    if constexpr (P == kEffect) {
      const EffectArgs& a = kept_.args();
      return a.effect->start(a.in, a.out, a.factor, at_once);
    } else {
      run_once();
      return nullptr;
    }
  }
  void for_each_number(const std::function<void(void*)>& f) override { kept_.for_each_number(f); }
  std::unique_ptr<RecordedCall> clone() const override {
    return std::make_unique<Call>(device(), kept_.args());
  }
  std::string to_string() const override {
    std::string read, written;
    prim::for_each_operand(kept_.args(), [&](const View& v, Access access) {
      std::string& list = access == Access::read ? read : written;
      list += (list.empty() ? "" : ", ") + std::string(arete::name_of(v.dtype)) +
              arete::to_string(v.sizes);
    });
    return std::string(name()) + "(" + read + (read.empty() ? "-> " : " -> ") + written + ")";
  }
  StreamHandle stream() const override { return kept_.args().context.stream; }
  std::vector<Number> numbers() const override { return kept_.numbers(); }

 private:
  void put_in_memory(size_t number, const View& value) override {
    kept_.put_in_memory(number, value);
  }
  void put_random_state(const View& state) override { kept_.put_random_state(state); }
  Kept<Args> kept_;
};

}  // namespace

#define ARETE_AS_RECORDED(name, Args)                                          \
  std::unique_ptr<RecordedCall> as_recorded(Device device, const Args& args) { \
    return std::make_unique<Call<Primitive::name, Args>>(device, args);        \
  }
ARETE_PRIMITIVES(ARETE_AS_RECORDED)
#undef ARETE_AS_RECORDED
std::unique_ptr<RecordedCall> as_recorded(Device device, const EffectArgs& args) {
  return std::make_unique<Call<kEffect, EffectArgs>>(device, args);
}

// Writes down the calls for one device, and runs them.
class Recorder::Tee final : public Forwarding<Primitives, Tee> {
 public:
  Tee(Recorder& recorder, Backend& backend) : recorder_(recorder), backend_(backend) {}
  Device device() const override { return backend_.device(); }

  template <Primitive P, class Args>
  ResultOf<P> pass(const Args& args) {
    for_each_operand(args, [&](const View& v, Access access) {
      if (!v.storage) return;
      Memory& memory = recorder_.keep(v.storage);
      if (!memory.used) memory.filled_by_host = access == Access::read;
      memory.used = true;
    });
    Args named = args;
    named.context.stream = backend_.current_stream();
    recorder_.calls_.push_back(as_recorded(device(), named));
    return run_primitive<P>(backend_, args);
  }
  StoragePtr new_storage(size_t bytes) override {
    StoragePtr made = backend_.new_storage(bytes);
    recorder_.keep(made.get()).made = true;
    return made;
  }
  // Replays find temporaries where they were.
  void* scratch(size_t bytes) override { return new_storage(bytes)->data(); }
  void release_scratch(void*, size_t) noexcept override {}

 private:
  Recorder& recorder_;
  Backend& backend_;
};

Recorder::Recorder() = default;
Recorder::~Recorder() = default;

Primitives& Recorder::on(Device device) {
  for (const auto& tee : tees_)
    if (tee->device() == device) return *tee;
  return *tees_.emplace_back(std::make_unique<Tee>(*this, backend_for(device)));
}

Recorder::Memory& Recorder::keep(const Storage* storage) {
  Memory& memory = memory_[storage];
  if (!memory.storage) memory.storage = StoragePtr(const_cast<Storage*>(storage));
  return memory;
}

std::vector<StoragePtr> Recorder::results() const {
  std::vector<StoragePtr> all;
  for (const auto& [address, memory] : memory_)
    if (memory.made && memory.used && !memory.filled_by_host) all.push_back(memory.storage);
  return all;
}

std::vector<std::unique_ptr<RecordedCall>> Recorder::take_calls() {
  return std::exchange(calls_, {});
}
std::unordered_map<const Storage*, Recorder::Memory> Recorder::take_memory() {
  return std::exchange(memory_, {});
}

void Recorder::put_in_memory(size_t call, size_t number, const View& value) {
  ARETE_CHECK(call < calls_.size(),
              IndexError("Recorder", "there is no call of that number").got(std::to_string(call)));
  const std::vector<Number> numbers = calls_[call]->numbers();
  ARETE_CHECK(number < numbers.size(),
              IndexError("Recorder", "the call has no number of that position")
                  .got(std::to_string(number) + " of " + std::to_string(numbers.size())));
  ARETE_CHECK(value.dtype == numbers[number].dtype && value.numel() == 1 && value.storage,
              ValueError("Recorder", "a number in memory is one element of a tensor")
                  .expected(arete::name_of(numbers[number].dtype))
                  .got(std::string(arete::name_of(value.dtype)) + arete::to_string(value.sizes)));
  keep(value.storage).used = true;
  calls_[call]->put_in_memory(number, value);
}

void Recorder::put_random_state(const View& state) {
  ARETE_CHECK(state.dtype == kInt64 && state.numel() == 2 && state.is_contiguous() && state.storage,
              ValueError("Recorder", "the state of random calls is two numbers of int64")
                  .got(std::string(arete::name_of(state.dtype)) + arete::to_string(state.sizes)));
  keep(state.storage).used = true;
  for (const auto& call : calls_)
    if (call->device() == state.storage->device()) call->put_random_state(state);
}

int64_t RecordedCall::run_once() const { return run(backend_for(device_)); }

void RecordedCall::run_again() const {
  Backend& backend = backend_for(device_);
  const StreamScope scope(backend, stream());
  run(backend);
  const_cast<RecordedCall*>(this)->for_each_operand([](const View& v, Access access) {
    if (v.storage && access != Access::read) const_cast<Storage*>(v.storage)->bump_version();
  });
}

void Recorder::replay() const {
  for (const auto& call : calls_) call->run_again();
}

std::string Recorder::to_string() const {
  std::string text;
  for (const auto& call : calls_) text += call->to_string() + "\n";
  return text;
}

}  // namespace arete::prim
