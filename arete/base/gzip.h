// Gzip: packing, and unpacking of data that may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arete::io {

/// Whether the bytes begin as gzip data does.
bool is_gzip(std::span<const std::byte> bytes);

/// Unpacks all members of gzip data and checks their CRC and sizes. IoError when the data is
/// damaged or truncated, is followed by something else, or unpacks to more than `max_bytes`.
/// `file_name` is used in these texts only.
std::vector<uint8_t> gunzip(std::span<const std::byte> bytes, uint64_t max_bytes,
                            std::string_view file_name = "gzip data");

/// The first `count` unpacked bytes, fewer if there are not so many; the rest is not looked at.
std::vector<uint8_t> gunzip_prefix(std::span<const std::byte> bytes, uint64_t count,
                                   std::string_view file_name = "gzip data");

/// `text` as gzip data.
std::vector<std::byte> gzip(std::string_view text);

/// Writes `text` to a file, all or nothing (AtomicFile), as gzip data if the name ends in .gz.
void write_text(const std::string& path, std::string_view text);

}  // namespace arete::io
