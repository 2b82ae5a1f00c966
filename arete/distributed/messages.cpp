// Messages between two processes of a group.
#include "arete/distributed/call_internal.h"
#include "arete/distributed/monitor.h"
#include "arete/distributed/process_group_internal.h"
#include "arete/distributed/stream_calls_internal.h"

namespace arete::distributed {

using prim::CollectiveKind;

Device ProcessGroup::check_message(const Message& m, bool in_batch) const {
  const char* const name = m.sends ? "send" : "recv";
  check_tensor(name, m.tensor);
  const Device home = home_of(name, m.tensor);
  if (m.sends || m.peer >= 0) check_rank(name, m.sends ? "dst" : "src", m.peer);
  // NCCL matches what a process sends to itself within one piece of work.
  ARETE_CHECK(m.peer != rank_ || (in_batch && !home.is_cpu()),
              ValueError(name, m.sends ? "Invalid destination rank: destination rank should not be "
                                         "the same as the rank of the current process."
                                       : "Invalid source rank: source rank should not be the same "
                                         "as the rank of the current process."));
  ARETE_CHECK(m.tag < prim::kFirstOwnTag, ValueError(name, "the tag is too large").argument("tag"));
  ARETE_CHECK(m.peer >= 0 || home.is_cpu(),
              NotImplementedError(name, "NCCL receives from no unknown rank").argument("src"));
  return home;
}

std::shared_ptr<Call> ProcessGroup::call_of(const Message& m, Device home,
                                            const void* queue) const {
  auto call = std::make_shared<Call>();
  call->args = {.kind = m.sends ? CollectiveKind::send : CollectiveKind::recv,
                .root = m.peer,
                .timeout = timeout_};
  call->home = home;
  call->queue = queue;
  if (m.sends)
    call->add_in(m.tensor);
  else
    call->add_out(m.tensor);
  call->make_views();
  return call;
}

WorkPtr ProcessGroup::message(const Message& m, bool async, int* source) {
  const Device home = check_message(m);
  const MadeNow now(m.sends ? "send" : "recv", {{&m.tensor, 1}});
  if (!home.is_cpu()) {
    if (source) *source = m.peer;
    StreamCalls& streams = stream_calls(home);
    return streams.run({call_of(m, home, async ? streams.queue() : nullptr)}, async);
  }
  const std::shared_ptr<Call> call = call_of(m, home, nullptr);
  const uint64_t number = watch_->enter(m.sends ? CallKind::send : CallKind::recv, m.peer,
                                        m.sends ? &call->in_views[0] : &call->out_views[0]);
  // Under way at once, whoever waits for it: two that send to each other first do not block.
  std::shared_ptr<prim::Transfer> transfer;
  try {
    transfer = m.sends ? communicator_->send(call->in_views[0], m.peer, m.tag)
                       : communicator_->recv(call->out_views[0], m.peer, m.tag);
  } catch (...) {
    watch_->leave(number, true);
    throw;
  }
  const auto complete = [this, call, transfer, number, timeout = timeout_] {
    int other = -1;
    watch_->perform(number, [&] {
      ToldCall told(cpu_backend_, *call);
      other = transfer->wait(timeout);
      call->copy_back();
      told.end();
    });
    return other;
  };
  if (!async) {
    const int other = complete();
    if (source) *source = other;
    return nullptr;
  }
  const auto work = std::make_shared<Work>(nullptr);
  try {
    submit(threads_->transfers, work, complete);
  } catch (...) {
    // Nobody would wait for the message, which uses the tensor's memory.
    communicator_->abort();
    watch_->leave(number, true);
    throw;
  }
  return work;
}

WorkPtr ProcessGroup::send(const Tensor& tensor, int dst, uint32_t tag, bool async) {
  return message({tensor, dst, tag, true}, async, nullptr);
}

WorkPtr ProcessGroup::recv(const Tensor& tensor, int src, uint32_t tag, bool async, int* source) {
  return message({tensor, src, tag, false}, async, source);
}

std::vector<WorkPtr> ProcessGroup::start_messages(const std::vector<Message>& messages) {
  std::vector<WorkPtr> works;
  std::vector<std::shared_ptr<Call>> together;
  StreamCalls* streams = nullptr;
  for (const Message& m : messages) {
    const Device home = check_message(m, true);
    if (home.is_cpu()) {
      works.push_back(message(m, true, nullptr));
      continue;
    }
    streams = &stream_calls(home);
    const MadeNow now("batch_isend_irecv", {{&m.tensor, 1}});
    together.push_back(call_of(m, home, streams->queue()));
  }
  if (streams) works.push_back(streams->run(together, true));
  return works;
}

}  // namespace arete::distributed
