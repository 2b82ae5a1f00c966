// One call of a group as communicators want it, and what to do with its results.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/modes.h"
#include "arete/core/tensor.h"
#include "arete/core/tracing.h"
#include "arete/ops/record.h"
#include "arete/prim/communicator.h"

namespace arete::prim {
class Backend;
}

namespace arete::distributed {

/// While it lives calls are made at once. Where the thread puts calls off, those before come first,
/// and a compiled function breaks here; so do calls that the tensors wait for. NotImplementedError
/// while a program is captured.
class MadeNow : ModesGuard {
 public:
  MadeNow(const char* name, std::initializer_list<std::span<const Tensor>> tensors);
};

/// Whether the thread puts calls off, and one of the memory of `home` with these tensors with them.
bool may_be_put_off(Device home, std::initializer_list<std::span<const Tensor>> tensors);

/// TypeError for an undefined one.
void check_tensor(const char* op, const Tensor& t);
/// DeviceError while a graph is captured: the host cannot wait for a call then.
void check_no_capture(prim::Backend& gpu);

/// What a call keeps until it is done.
struct Call {
  prim::CollectiveArgs args;
  Device home = kCPU;  // whose memory its tensors are in
  bool is_put_off = false;
  const void* queue = nullptr;                         // of calls that come before this one anyway
  std::vector<Tensor> in, out;                         // in order, in memory of `home`
  std::vector<std::pair<Tensor, Tensor>> copied_back;  // (to, from)
  std::vector<prim::View> in_views, out_views;
  std::vector<StoragePtr> memory{};  // of views without tensors

  void add_in(const Tensor& t);
  /// Counts as a write of it.
  void add_out(const Tensor& t);
  /// Parts of one size are one message, wherever they are: all ranks speak alike. Those that do
  /// not follow each other are copied.
  void gather_into(const std::vector<Tensor>& outputs);
  /// The same of parts that are read.
  void gather_from(const std::vector<Tensor>& inputs);
  void make_views();
  /// By the current stream.
  void copy_back();

 private:
  /// Whether parts are of one size, but do not follow each other.
  bool lies_apart(const std::vector<Tensor>& parts) const;
  Tensor form(const Tensor& t, bool writes) const;
  Tensor unwatched(const Tensor& t) const;
};

/// Tells a profiler of a call while it lives: "gloo:all_reduce", or "nccl:coalesced" where several
/// are one piece of work, of which it gets the first.
class ToldCall {
 public:
  ToldCall(const std::string& backend, const Call& call, size_t together = 1);
  /// One that has not ended has failed.
  ~ToldCall();
  void end();
  ToldCall(const ToldCall&) = delete;
  ToldCall& operator=(const ToldCall&) = delete;

 private:
  tracing::Listener* listener_;
  const Call& call_;
  const ops::OpRecord* record_ = nullptr;
  ops::Arg tensors_;
  uint64_t id_ = 0;
};

}  // namespace arete::distributed
