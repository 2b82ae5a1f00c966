// Recorded calls on streams of a device made of the CPU.
#include <gtest/gtest.h>

#include "arete/arete.h"
#include "arete/prim/recorder.h"
#include "tests/graph/recording_device.h"
#include "tests/support/errors.h"

namespace arete {
namespace {

TEST(RecorderStreams, AnErrorOfAReplayLeavesTheCurrentStream) {
  test::RecordingDevice::install();
  const TensorOptions there(kInt64, Device(DeviceType::cuda, 0));
  const Tensor table = arange(3, there);
  Tensor index = zeros({2}, there), rows;
  prim::Recorder recorder;
  const cuda::Stream side;
  {
    const cuda::StreamGuard guard(side);
    const ModesGuard modes_guard;
    modes().capture = &recorder;
    modes().word |= Modes::kCapture;
    rows = table.index_select(0, index);
  }
  EXPECT_EQ(recorder.calls().back()->stream(), side.native_handle());
  const cuda::Stream before = cuda::current_stream();
  index.fill_(2);
  recorder.replay();
  EXPECT_EQ(rows.to_vector<int64_t>(), (std::vector<int64_t>{2, 2}));
  index.fill_(7);
  EXPECT_ERROR(recorder.replay(), "index 7 is out of bounds");
  EXPECT_TRUE(cuda::current_stream() == before);
}

}  // namespace
}  // namespace arete
