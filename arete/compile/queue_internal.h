// Calls that are put off.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arete/compile/compile.h"
#include "arete/compile/trace_internal.h"
#include "arete/prim/values.h"

namespace arete::compile {

class Program final : public PassKeeper, public std::enable_shared_from_this<Program> {
 public:
  explicit Program(const CompileOptions& options) : options_(options) {}
  const CompileOptions& options() const { return options_; }

  using Words = std::span<const uint64_t>;
  /// A trace that begins with `before`, of `calls` calls, and goes on with `next`, or ends there if
  /// that is empty; null if there is none.
  std::shared_ptr<Trace> find(Words before, size_t calls, Words next);
  void add(const std::shared_ptr<Trace>& trace);
  void note_call() { ++calls_; }
  /// Whether the calls of the function, which begins, are put off: Note [Where plans do not pay].
  bool puts_off();
  void note_skipped() { ++skipped_; }
  void note_skipping(std::string text);
  std::string skipping() const;
  using BreakKey = std::pair<std::string, std::string>;  // where, what
  BreakKey note_break(const char* what);
  /// What it cost, if it is still known.
  void add_to_break(const BreakKey& key, double making, double waiting);
  /// Whether all plans that are made from now on have the bits of eager code.
  bool is_exact() const;
  /// Whether calls that only such a plan, of a CPU, may stand for are put off.
  bool is_worth_it(const PlanStats& plan) const;
  /// `is_new`: the plan's calls were written down before it.
  void note_run(const TracePlan& plan, double planning, double launching, bool is_new, bool on_cpu);
  /// The number of the line that the thread is at.
  int place_now();
  void reset();
  /// What was recorded in the function is differentiated as it was computed.
  void keep(const std::function<void()>& pass) override;

  CompileStats stats() const;
  std::vector<Break> breaks() const;
  /// From the one that was seen first.
  std::vector<std::shared_ptr<Trace>> traces() const;
  /// Lines of the program, by number.
  std::vector<std::string> places() const;

 private:
  const CompileOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Trace>> traces_;
  std::map<BreakKey, Break> breaks_;
  std::vector<std::string> places_;
  std::unordered_map<std::string, int> place_numbers_;
  std::atomic<int64_t> calls_{0}, skipped_{0};
  std::string skipping_;
  CompileStats totals_;  // but for calls, breaks and plans
  int64_t time_ = 0;
  // Note [Where plans do not pay]
  double gain_ = 0;  // microseconds, of the window so far
  int window_left_ = 0, at_once_left_ = 0;
  bool is_warm_ = false, on_cpu_ = true, has_eager_bits_ = true;
};

/// Numbers of memory: a table without memory for each entry, which is soon empty again.
class Numbers {
 public:
  static constexpr int kNone = -2, kUnused = -1;
  int find(const Storage* key) const {
    return table_.empty() ? kNone : table_[place_of(key)].second;
  }
  void set(const Storage* key, int number) {
    if (2 * (size_ + 1) > table_.size()) grow();
    auto& entry = table_[place_of(key)];
    if (!entry.first) ++size_;
    entry = {key, number};
  }
  void clear() {
    if (size_ > 0) std::ranges::fill(table_, kEmpty);
    size_ = 0;
  }

 private:
  using Entry = std::pair<const Storage*, int>;
  static constexpr Entry kEmpty{nullptr, kNone};
  size_t place_of(const Storage* key) const {
    const size_t mask = table_.size() - 1;
    size_t k = (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15u >> 32 & mask;
    while (table_[k].first && table_[k].first != key) k = (k + 1) & mask;
    return k;
  }
  void grow() {
    const std::vector<Entry> before =
        std::exchange(table_, std::vector<Entry>(std::max<size_t>(64, 2 * table_.size()), kEmpty));
    for (const Entry& e : before)
      if (e.first) table_[place_of(e.first)] = e;
  }
  std::vector<Entry> table_;
  size_t size_ = 0;
};

/// Words of a call, in room that stays.
class WordList {
 public:
  [[gnu::always_inline]] void add(uint64_t word) {
    if (size_ == room_.size()) room_.resize(std::max<size_t>(256, 2 * size_));
    room_[size_++] = word;
  }
  void clear() { size_ = 0; }
  operator std::span<const uint64_t>() const { return {room_.data(), size_}; }

 private:
  std::vector<uint64_t> room_;
  size_t size_ = 0;
};

/// Puts the calls of one thread off. Other threads may look at the memory.
class Queue final : public prim::Capture, public Promiser {
 public:
  /// One for the calls of a function; `may_break`: values may be looked at. Until give_back().
  static Queue& take(Program& program, bool may_break, int segment);
  void give_back() noexcept;
  prim::Primitives& on(Device device) override;
  const Promiser* promiser() const override { return this; }
  std::shared_ptr<PassKeeper> keeper() override { return program_->shared_from_this(); }
  void make_calls() override;
  void make_calls_for(const char* what) override;
  bool take(Device device, const prim::EffectArgs& effect) override;
  bool has_effect_on(const Storage& memory) const override;
  void promise(Storage& memory) override;
  bool let_go(Storage& memory) override;
  size_t handles_of(const Storage& memory) const override;
  void settle(const Storage& memory) override;
  /// Whatever is not there by now never will be.
  void give_up() noexcept;
  /// For what was looked at by the last break.
  void waited(double seconds) noexcept override;
  void note_look() noexcept override { looks_ = true; }
  std::optional<PutOffCalls> calls_so_far() const;
  size_t count() const { return count_; }
  /// PutOffCalls, of which there are none so far.
  void put_off_again(const PutOffCalls& calls, std::span<const StoragePtr> memory,
                     std::span<const int64_t> origins);
  StoragePtr promise(Device device, size_t bytes);

 private:
  class Target;
  struct Words;
  using BreakKey = Program::BreakKey;
  // Temporary memory of an operator that runs at present.
  struct Scratch {
    StoragePtr storage;
    std::byte* address;  // as it was given out
  };
  struct Place {
    const Storage* storage;
    int64_t offset;
  };

  Queue();
  ~Queue() override;
  void* scratch(Device device, size_t bytes);
  void release_scratch(void* address) noexcept;
  template <prim::Primitive P, class Args>
  prim::ResultOf<P> add(Device device, const Args& args);
  template <class Args>
  int64_t run_now(Device device, const Args& args);

  Place place_of(const prim::View& view) const;
  int number_of(const Place& place);
  void provide(const Storage* storage);
  void provide(const Storage* storage, void* memory);
  void provide_at(const Storage* storage, void* wish);
  void release(int buffer, StoragePtr& mine);
  void hold_promise(StoragePtr memory);
  void part_temporaries();
  template <class Args>
  void record(Device device, const Args& args);
  void start_recording(size_t calls);
  bool follows(size_t end);
  void flush();
  void check_may_break(const char* what) const;
  void break_here(const char* what);
  const char* maker_of(const Storage& memory) const;
  void run();
  void clear() noexcept;

  Program* program_ = nullptr;
  bool may_break_ = true;
  bool has_made_calls_ = false, looks_ = false;
  int segment_ = 0;                     // Trace::segment
  std::optional<BreakKey> last_break_;  // until the next call
  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::vector<Scratch> scratch_;
  // Memory that was provided since the queue began, with its stand-in.
  std::vector<std::pair<const Storage*, std::byte*>> settled_;

  std::vector<StoragePtr> done_;  // used by calls that were made

  // Since the last flush:
  std::vector<StoragePtr> held_;  // all that is used or promised; null: given up meanwhile
  Numbers known_;                 // its number, kUnused if no call has used it
  std::vector<UsedBuffer> used_;  // by number
  size_t settled_before_ = 0;     // of settled_
  // Of calls that were put off again: their temporaries are one promise, unless a plan has to be
  // made or has places for them outside its arena.
  const PutOffCalls* again_ = nullptr;
  const Storage* temporaries_ = nullptr;
  std::vector<const Storage*> affected_;  // by effects
  std::vector<int> lost_;                 // numbers of what will not be written
  std::vector<uint64_t> numbers_;
  std::map<std::pair<int, int>, prim::StreamHandle> streams_;
  size_t count_ = 0;                  // of calls
  std::shared_ptr<Trace> following_;  // whose first calls these are
  std::shared_ptr<Trace> recording_;
  // Of the call that is being added.
  WordList words_;
  std::vector<Operand> operands_;
};

}  // namespace arete::compile
