// A capture file as tcpdump and Wireshark read it (pcap with nanoseconds, Ethernet).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/fd.h"

namespace thalweg {

class PcapFile {
 public:
  static Result<PcapFile> create(const std::string& path);
  ~PcapFile() { flush(); }
  PcapFile(PcapFile&&) = default;
  PcapFile& operator=(PcapFile&&) = default;

  // `when_ns`: since 1970.
  void add(std::int64_t when_ns, std::span<const std::uint8_t> frame);
  // False: the file could not take all; nothing more is written to it.
  bool flush();

 private:
  explicit PcapFile(Fd file) : file_(std::move(file)) {}
  void append(std::span<const std::uint32_t> words);

  Fd file_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace thalweg
