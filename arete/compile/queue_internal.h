// Calls that are put off.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
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
  void note_break(const char* what);
  void note_run() { ++runs_; }
  void reset();
  /// What was recorded in the function is differentiated as it was computed.
  void keep(const std::function<void()>& pass) override;

  CompileStats stats() const;
  std::vector<Break> breaks() const;
  std::string explain() const;

 private:
  const CompileOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Trace>> traces_;
  std::map<std::pair<std::string, std::string>, int64_t> breaks_;
  std::atomic<int64_t> calls_{0}, runs_{0}, seen_{0};
  int64_t time_ = 0;
};

/// Puts the calls of one thread off. Other threads may look at the memory.
class Queue final : public prim::Capture, public Promiser {
 public:
  explicit Queue(Program& program);
  ~Queue() override;
  prim::Primitives& on(Device device) override;
  const Promiser* promiser() const override { return this; }
  std::shared_ptr<PassKeeper> keeper() override { return program_.shared_from_this(); }
  void make_calls() override;
  void settle(const Storage& memory) override;
  /// Whatever is not there by now never will be.
  void give_up() noexcept;

 private:
  class Target;
  struct Words;
  // Temporary memory of an operator that runs at present.
  struct Scratch {
    StoragePtr storage;
    std::byte* address;  // as it was given out
  };
  struct Place {
    const Storage* storage;
    int64_t offset;
  };

  StoragePtr promise(Device device, size_t bytes);
  void* scratch(Device device, size_t bytes);
  void release_scratch(void* address) noexcept;
  template <prim::Primitive P, class Args>
  prim::ResultOf<P> add(Device device, const Args& args);
  template <class Args>
  int64_t run_now(Device device, const Args& args);

  Place place_of(const prim::View& view) const;
  int number_of(const Storage* storage);
  void provide(const Storage* storage);
  template <class Args>
  void record(Device device, const Args& args);
  void start_recording(size_t calls);
  bool follows(size_t end);
  void flush();
  void run();
  void clear() noexcept;

  Program& program_;
  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::vector<Scratch> scratch_;
  std::unordered_map<const Storage*, std::byte*> settled_;  // their stand-ins

  // Since the last flush:
  std::vector<StoragePtr> held_;                   // all that is used or promised
  std::vector<const Storage*> provided_;           // of it
  std::vector<int> lost_;                          // numbers of what will not be written
  std::unordered_map<const Storage*, int> known_;  // its number, -1 if no call has used it
  std::vector<StoragePtr> used_;                   // by number
  std::vector<uint64_t> numbers_;
  std::vector<size_t> number_ends_;
  std::map<std::pair<int, int>, prim::StreamHandle> streams_;
  size_t count_ = 0;                  // of calls
  std::shared_ptr<Trace> following_;  // whose first calls these are
  std::shared_ptr<Trace> recording_;
  // Of the call that is being added.
  std::vector<uint64_t> words_;
  std::vector<Operand> operands_;
};

}  // namespace arete::compile
