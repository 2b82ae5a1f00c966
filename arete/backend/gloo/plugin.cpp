// The communicator of host memory, by Gloo, and the function that libarete calls by name when it
// opens this library.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "arete/base/distributed_error.h"
#include "arete/prim/communicator.h"
#include "arete/prim/plugin_internal.h"

namespace arete::prim {
namespace {

[[noreturn]] void throw_failed(const char* what, const std::exception& e) {
  throw DistributedError(DistributedError::Failure::backend, what, e.what());
}

// Runs `f`, with Gloo's exceptions as ours.
template <class F>
auto guarded(const char* what, F&& f) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw_failed(what, e);
  }
}

size_t bytes_of(const View& v) { return size_t(v.numel()) * size_of(v.dtype); }

// Gloo wants the type of elements, of which only the size matters to it.
template <class F>
void with_element(size_t size, F&& f) {
  switch (size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    case 8:
      return f(uint64_t());
    default:
      return f(std::array<uint64_t, 2>());
  }
}

class StoreOfRendezvous final : public gloo::rendezvous::Store {
 public:
  explicit StoreOfRendezvous(Rendezvous& where) : where_(where) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    where_.set(key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = where_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { where_.wait(keys, std::nullopt); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    where_.wait(keys, timeout);
  }

 private:
  Rendezvous& where_;
};

// Two processes with the same text reach each other by the loopback address.
std::string network_of_this_process() {
  std::string text(4096, '\0');
  const ssize_t n = readlink("/proc/self/ns/net", text.data(), text.size());
  text.resize(n > 0 ? size_t(n) : 0);
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (text.empty() || !(boot >> id)) return "unknown";
  return id + " " + text;
}

// As PyTorch: the interface that GLOO_SOCKET_IFNAME names, or the address of the host's name. But
// nobody else can connect where all processes are on one machine.
std::shared_ptr<gloo::transport::Device> device_for(Rendezvous& where, int rank, int size) {
  gloo::transport::tcp::attr attributes;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface && *interface) {
    attributes.iface = interface;
    return gloo::transport::tcp::CreateDevice(attributes);
  }
  const std::string here = network_of_this_process();
  where.set("network/" + std::to_string(rank), here);
  bool alone = here != "unknown";
  for (int r = 0; r < size; ++r) alone &= where.get("network/" + std::to_string(r)) == here;
  std::array<char, 256> name{};
  if (alone || gethostname(name.data(), name.size() - 1) != 0)
    attributes.hostname = "127.0.0.1";
  else
    attributes.hostname = name.data();
  return gloo::transport::tcp::CreateDevice(attributes);
}

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, int peer, bool sends)
      : buffer_(std::move(buffer)), peer_(peer), sends_(sends) {}
  int wait(std::chrono::milliseconds timeout) override {
    return guarded(sends_ ? "send" : "recv", [&] {
      int rank = peer_;
      if (sends_)
        buffer_->waitSend(timeout);
      else
        buffer_->waitRecv(&rank, timeout);
      return rank;
    });
  }

 private:
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  int peer_;
  bool sends_;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(Rendezvous& where, int rank, int size, std::chrono::milliseconds timeout)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    guarded("init_process_group", [&] {
      context_->setTimeout(timeout);
      device_ = device_for(where, rank, size);
      StoreOfRendezvous store(where);
      context_->connectFullMesh(store, device_);
    });
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  bool supports(const CollectiveArgs& args) const override {
    switch (args.kind) {
      case CollectiveKind::all_reduce:
        return args.reduce != ReduceKind::avg && args.reduce != ReduceKind::premul_sum;
      case CollectiveKind::broadcast:
        return true;
      case CollectiveKind::all_gather: {
        // Parts of one size, one after the other.
        const std::byte* at = args.out[0].data;
        for (const View& v : args.out) {
          if (v.data != at || v.numel() != args.out[0].numel()) return false;
          at += bytes_of(v);
        }
        return true;
      }
      default:
        return false;
    }
  }

  void run(const CollectiveArgs& args) override {
    const uint32_t tag = next_tag_++;
    const View& out = args.out[0];
    const auto n = size_t(out.numel());
    if (n == 0) return;
    guarded(name_of(args.kind), [&] {
      with_element(size_of(out.dtype), [&](auto element) {
        using T = decltype(element);
        if (args.kind == CollectiveKind::all_reduce) {
          gloo::AllreduceOptions options(context_);
          options.setInput(args.in[0].as<T>(), n);
          options.setOutput(out.as<T>(), n);
          options.setReduceFunction(reduce_function(args.reduce, out.dtype));
          options.setTag(tag);
          options.setTimeout(args.timeout);
          gloo::allreduce(options);
        } else if (args.kind == CollectiveKind::broadcast) {
          gloo::BroadcastOptions options(context_);
          options.setOutput(out.as<T>(), n);
          options.setRoot(args.root);
          options.setTag(tag);
          options.setTimeout(args.timeout);
          gloo::broadcast(options);
        } else {
          gloo::AllgatherOptions options(context_);
          options.setInput(args.in[0].as<T>(), n);
          options.setOutput(out.as<T>(), n * size_t(size()));
          options.setTag(tag);
          options.setTimeout(args.timeout);
          gloo::allgather(options);
        }
      });
    });
  }

  std::unique_ptr<Transfer> send(const View& view, int to, uint32_t tag) override {
    return guarded("send", [&] {
      auto buffer = context_->createUnboundBuffer(view.data, bytes_of(view));
      buffer->send(to, tag);
      return std::make_unique<GlooTransfer>(std::move(buffer), to, true);
    });
  }

  std::unique_ptr<Transfer> recv(const View& view, int from, uint32_t tag) override {
    return guarded("recv", [&] {
      auto buffer = context_->createUnboundBuffer(view.data, bytes_of(view));
      if (from >= 0) {
        buffer->recv(from, tag);
      } else {
        std::vector<int> others;
        for (int r = 0; r < size(); ++r)
          if (r != rank()) others.push_back(r);
        buffer->recv(others, tag);
      }
      return std::make_unique<GlooTransfer>(std::move(buffer), from, false);
    });
  }

  void abort() noexcept override {
    try {
      // Closing does not wake those who wait here. A wait that takes too long ends all others.
      char nothing = 0;
      context_->createUnboundBuffer(&nothing, 1)->waitRecv(nullptr, std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      // It took too long.
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // They are closed already.
    }
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::shared_ptr<gloo::transport::Device> device_;
  uint32_t next_tag_ = 0;
};

std::unique_ptr<Communicator> make(Rendezvous& where, int rank, int size,
                                   std::chrono::milliseconds timeout) {
  return std::make_unique<GlooCommunicator>(where, rank, size, timeout);
}

}  // namespace
}  // namespace arete::prim

extern "C" __attribute__((visibility("default"))) const char* arete_gloo_plugin(
    const arete::prim::PluginHost* host, arete::prim::MakeCommunicator* found) {
  static std::string reason;
  reason = arete::prim::plugin_mismatch(*host, ARETE_VERSION, "libarete_gloo.so");
  if (!reason.empty()) return reason.c_str();
  *found = &arete::prim::make;
  return nullptr;
}
