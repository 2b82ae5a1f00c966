// GPUs and their streams.
#include "arete/device/cuda.h"
#include "arete/c_api/handles_internal.h"

using namespace arete;
using namespace arete::c_api;

struct arete_stream {
  cuda::Stream value;
};

namespace {
void make(cuda::Stream s, arete_stream** out) { *out = new arete_stream{std::move(s)}; }
}  // namespace

int32_t arete_cuda_device_count() {
  int32_t n = 0;
  guarded([&] { n = cuda::device_count(); });
  return n;
}

const char* arete_cuda_unavailable_reason() {
  const char* text = "";
  guarded([&] {
    texts().reason = cuda::unavailable_reason();
    text = texts().reason.c_str();
  });
  return text;
}

int32_t arete_cuda_current_device() { return cuda::current_device(); }

arete_status arete_cuda_set_device(int32_t device) {
  return guarded([&] { cuda::set_device(device); });
}

arete_status arete_cuda_synchronize(int32_t device) {
  return guarded([&] { cuda::synchronize(device); });
}

arete_status arete_stream_create(int32_t device, int32_t priority, arete_stream** out) {
  return guarded([&] { make(cuda::Stream(priority, device), &given(out, "out")); });
}

arete_status arete_stream_from_native(void* stream, int32_t device, arete_stream** out) {
  return guarded([&] { make(cuda::Stream::from_native(stream, device), &given(out, "out")); });
}

arete_status arete_stream_current(int32_t device, arete_stream** out) {
  return guarded([&] { make(cuda::current_stream(device), &given(out, "out")); });
}

arete_status arete_stream_set_current(const arete_stream* stream) {
  return guarded([&] { cuda::set_stream(given(stream, "stream").value); });
}

arete_status arete_stream_native(const arete_stream* stream, void** out) {
  return guarded([&] { given(out, "out") = given(stream, "stream").value.native_handle(); });
}

arete_status arete_stream_synchronize(const arete_stream* stream) {
  return guarded([&] { given(stream, "stream").value.synchronize(); });
}

arete_status arete_stream_wait(const arete_stream* stream, const arete_stream* other) {
  return guarded([&] { given(stream, "stream").value.wait_stream(given(other, "other").value); });
}

void arete_stream_free(arete_stream* stream) { delete stream; }
