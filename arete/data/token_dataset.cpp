#include "arete/data/token_dataset.h"

#include <bit>
#include <cstring>

#include "arete/ops/creation.h"

namespace arete::data {

static_assert(std::endian::native == std::endian::little);

TokenDataset::TokenDataset(const std::string& path, int64_t length, int bytes_per_token,
                           int64_t stride)
    : file_(path),
      length_(length),
      stride_(stride == 0 ? length : stride),
      bytes_(bytes_per_token) {
  ARETE_CHECK(bytes_ == 2 || bytes_ == 4, ValueError("TokenDataset", "a token has 2 or 4 bytes")
                                              .argument("bytes_per_token")
                                              .got(std::to_string(bytes_)));
  ARETE_CHECK(length_ >= 1 && stride_ >= 1,
              ValueError("TokenDataset", "length and stride must be positive")
                  .got(std::to_string(length) + " and " + std::to_string(stride)));
  ARETE_CHECK(file_.size() % uint64_t(bytes_) == 0,
              IoError("TokenDataset", "the file ends inside a token")
                  .argument(path)
                  .expected("a multiple of " + std::to_string(bytes_) + " bytes")
                  .got(std::to_string(file_.size())));
  tokens_ = int64_t(file_.size() / uint64_t(bytes_));
  ARETE_CHECK(tokens_ > length_, IoError("TokenDataset", "the file is shorter than one window")
                                     .argument(path)
                                     .expected(std::to_string(length_ + 1) + " tokens")
                                     .got(std::to_string(tokens_)));
  count_ = (tokens_ - 1 - length_) / stride_ + 1;
}

void TokenDataset::read(int64_t index, int64_t* input, int64_t* target) const {
  ARETE_CHECK(
      index >= 0 && index < count_,
      IndexError("TokenDataset", "index " + std::to_string(index) + " is out of range for " +
                                     std::to_string(count_) + " windows"));
  const std::byte* p = file_.bytes().data() + index * stride_ * bytes_;
  const auto token = [&](int64_t i) -> int64_t {
    if (bytes_ == 2) {
      uint16_t v;
      std::memcpy(&v, p + i * 2, 2);
      return v;
    }
    uint32_t v;
    std::memcpy(&v, p + i * 4, 4);
    return v;
  };
  for (int64_t i = 0; i < length_; ++i) {
    input[i] = token(i);
    target[i] = token(i + 1);
  }
}

Example TokenDataset::get(int64_t index) const {
  const Batch one = get_batch(IntList(&index, 1));
  return {one[0].select(0, 0), one[1].select(0, 0)};
}

Batch TokenDataset::get_batch(IntList indices) const {
  file_.check_not_truncated();
  const int64_t n = int64_t(indices.size());
  const Tensor input = empty({n, length_}, TensorOptions(kInt64)),
               target = empty({n, length_}, TensorOptions(kInt64));
  for (int64_t i = 0; i < n; ++i)
    read(indices[size_t(i)], input.data<int64_t>() + i * length_,
         target.data<int64_t>() + i * length_);
  return Batch{input, target};
}

}  // namespace arete::data
