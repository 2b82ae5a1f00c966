// The training program, run in this process on small data sets that the test writes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "arete/base/error.h"
#include "arete/device/cuda.h"
#include "arete/io/tensor_io.h"
#include "cli/commands.h"
#include "cli/run_files.h"
#include "tests/support/errors.h"

namespace arete::cli {
namespace {

namespace fs = std::filesystem;

class TrainingRun : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) /
        ("arete-run-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    // A death test runs SetUp again in its own process and must find what its parent left.
    fs::create_directories(root_ / "data");
    write_split("train", 200, 1);
    write_split("t10k", 50, 2);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Images whose bright row tells the class.
  void write_split(const std::string& name, int n, int seed) {
    const auto number = [](std::ofstream& f, uint32_t v) {
      for (int shift = 24; shift >= 0; shift -= 8) f.put(char(v >> shift));
    };
    std::ofstream images(root_ / "data" / (name + "-images-idx3-ubyte"), std::ios::binary);
    number(images, 0x0803), number(images, uint32_t(n)), number(images, 28), number(images, 28);
    std::ofstream labels(root_ / "data" / (name + "-labels-idx1-ubyte"), std::ios::binary);
    number(labels, 0x0801), number(labels, uint32_t(n));
    for (int i = 0; i < n; ++i) {
      const int label = (i * 7 + seed) % 10;
      labels.put(char(label));
      for (int p = 0; p < 784; ++p)
        images.put(char(p / 28 / 2 == label ? 200 + (i + p) % 50 : (i * p) % 40));
    }
  }

  TrainOptions options(const std::string& out, int64_t epochs) const {
    TrainOptions o;
    o.dataset = "mnist";
    o.data = (root_ / "data").string();
    o.out = (root_ / out).string();
    o.epochs = epochs;
    o.batch_size = 16;
    o.device = "cpu";
    o.quiet = true;
    return o;
  }

  static std::string error_of(const TrainOptions& o) {
    return test::error_of([&] { train(o); });
  }

  // Every tensor of two checkpoints, bit for bit.
  void expect_equal_checkpoints(const std::string& a, const std::string& b) {
    const auto x = io::load_safetensors(checkpoint_path((root_ / a).string()));
    const auto y = io::load_safetensors(checkpoint_path((root_ / b).string()));
    ASSERT_EQ(x.tensors.size(), y.tensors.size());
    EXPECT_GT(x.tensors.size(), 4u);
    for (const auto& [name, t] : x.tensors) {
      ASSERT_TRUE(y.tensors.contains(name)) << name;
      const Tensor& u = y.tensors.at(name);
      ASSERT_EQ(t.nbytes(), u.nbytes()) << name;
      EXPECT_EQ(std::memcmp(t.data_ptr(), u.data_ptr(), t.nbytes()), 0) << name;
    }
  }

  fs::path root_;
};

TEST_F(TrainingRun, LearnsAndWritesItsFiles) {
  EXPECT_EQ(train(options("run", 3)), 0);
  const SavedRun s(checkpoint_path((root_ / "run").string()));
  ASSERT_EQ(s.number("epoch"), 3);
  const auto figure = [&](const char* name) {
    return std::stod(s.file().metadata.at(std::string("history.") + name));
  };
  EXPECT_LT(figure("2.train_loss"), figure("0.train_loss"));
  EXPECT_GT(figure("2.val_accuracy"), 0.9);
  EXPECT_EQ(s.number("step"), 3 * 13);
  EXPECT_TRUE(fs::exists(root_ / "run/best.safetensors"));
  EXPECT_TRUE(fs::exists(root_ / "run/report.html"));
  std::ifstream metrics(root_ / "run/metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(metrics, line);) lines += !line.empty();
  EXPECT_EQ(lines, 3);
  EXPECT_FALSE(fs::is_empty(root_ / "run/events"));
  EvalOptions e;
  e.checkpoint = (root_ / "run").string();
  e.data = (root_ / "data").string();
  e.device = "cpu";
  EXPECT_EQ(evaluate(e), 0);
}

TEST_F(TrainingRun, ResumedRunEndsBitEqual) {
  for (const char* model : {"mlp", "cnn"}) {
    TrainOptions whole = options(std::string("whole-") + model, 2);
    whole.model = model;
    whole.schedule = "constant";  // so that a shorter run is the beginning of a longer one
    EXPECT_EQ(train(whole), 0);
    TrainOptions parts = options(std::string("parts-") + model, 1);
    parts.model = model;
    parts.schedule = "constant";
    parts.workers = 2;
    EXPECT_EQ(train(parts), 0);
    parts.epochs = 2;
    parts.resume = true;
    parts.workers = 0;
    EXPECT_EQ(train(parts), 0);
    expect_equal_checkpoints(std::string("whole-") + model, std::string("parts-") + model);
  }
}

// A process of its own is killed in the middle of an epoch, with no chance to say goodbye.
TEST_F(TrainingRun, KilledWithinAnEpochResumesBitEqual) {
  TrainOptions whole = options("whole", 3);
  whole.overwrite = true;  // the death test's process comes by here again
  EXPECT_EQ(train(whole), 0);
  const std::string checkpoint = checkpoint_path((root_ / "parts").string());
  TrainOptions o = options("parts", 3);
  o.checkpoint_every = 5;
  o.workers = 0;
  // Step 20, the last saved, is in the second epoch of 13 steps. "threadsafe": in a fresh process,
  // not a fork.
  o.after_step = [](int64_t step) {
    if (step == 21) std::raise(SIGKILL);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(train(o), testing::KilledBySignal(SIGKILL), "");
  const SavedRun s(checkpoint);
  EXPECT_EQ(s.number("step"), 20);
  EXPECT_EQ(s.number("epoch"), 1);
  EXPECT_EQ(s.number("rank.0.seen"), 7 * 16);
  o.after_step = nullptr;
  o.resume = true;
  EXPECT_EQ(train(o), 0);
  expect_equal_checkpoints("whole", "parts");
}

// The state goes into a file, and the sums of the epoch with it: figures are the same, too.
TEST_F(TrainingRun, InterruptedRunGoesOnWithinTheEpoch) {
  EXPECT_EQ(train(options("whole", 2)), 0);
  TrainOptions o = options("parts", 2);
  o.after_step = [](int64_t step) {
    if (step == 3 || step == 15) std::raise(SIGINT);
  };
  EXPECT_EQ(train(o), 130);
  const std::string checkpoint = checkpoint_path((root_ / "parts").string());
  EXPECT_EQ(SavedRun(checkpoint).number("step"), 4);
  EXPECT_FALSE(fs::exists(root_ / "parts/report.html"));
  o.resume = true;
  EXPECT_EQ(train(o), 130);
  EXPECT_EQ(SavedRun(checkpoint).number("epoch"), 1);
  EXPECT_EQ(SavedRun(checkpoint).number("step"), 16);
  EXPECT_EQ(train(o), 0);
  expect_equal_checkpoints("whole", "parts");
  const SavedRun whole(checkpoint_path((root_ / "whole").string())), parts(checkpoint);
  for (const auto& [name, text] : whole.file().metadata)
    if (name.find("seconds") == std::string::npos) {
      EXPECT_EQ(text, parts.file().metadata.at(name)) << name;
    }
  EXPECT_EQ(whole.file().metadata.size(), parts.file().metadata.size());
}

TEST_F(TrainingRun, RefusesWhatWouldLoseARun) {
  EXPECT_EQ(train(options("run", 1)), 0);
  EXPECT_NE(error_of(options("run", 1)).find("already holds a run"), std::string::npos);
  TrainOptions o = options("run", 2);
  o.resume = true;
  o.model = "cnn";
  EXPECT_NE(error_of(o).find("the saved run has another model"), std::string::npos);
  o = options("nowhere", 1);
  o.resume = true;
  EXPECT_NE(error_of(o).find("there is no checkpoint to resume from"), std::string::npos);
}

TEST_F(TrainingRun, NamesBadInput) {
  TrainOptions o = options("run", 1);
  o.data = (root_ / "missing").string();
  o.dataset = "fashion-mnist";
  EXPECT_NE(error_of(o).find("the data folder does not exist"), std::string::npos);
  o = options("run", 1);
  o.dataset = "imagenet";
  EXPECT_NE(error_of(o).find("there is no data set called 'imagenet'"), std::string::npos);
  if (!cuda::is_available()) {
    o = options("run", 1);
    o.device = "cuda";
    EXPECT_NE(error_of(o).find("there is no CUDA device"), std::string::npos);
  }
  o = options("run", 1);
  o.lr = 1e38;
  EXPECT_NE(error_of(o).find("the training loss is not finite"), std::string::npos);
  EXPECT_FALSE(fs::exists(checkpoint_path(o.out))) << "a run gone wrong must not be saved";
  fs::resize_file(root_ / "data/train-images-idx3-ubyte", 1000);
  EXPECT_NE(error_of(options("run", 1)).find("train-images-idx3-ubyte"), std::string::npos);
  std::ofstream(root_ / "not-a-checkpoint.safetensors") << "hello";
  EvalOptions e;
  e.checkpoint = (root_ / "not-a-checkpoint.safetensors").string();
  EXPECT_THROW(evaluate(e), Error);
}

}  // namespace
}  // namespace arete::cli
