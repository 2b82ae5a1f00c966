// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace arete::io {

/// The CRC-32C of `bytes`, or of what came before and `bytes` when `crc` is the value so far.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

/// The masked form that TFRecord stores, so that a CRC over data holding CRCs stays strong.
inline uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

namespace detail {
/// The portable path, for the test that compares the two.
uint32_t crc32c_table(std::span<const std::byte> bytes, uint32_t crc);
}  // namespace detail

}  // namespace arete::io
