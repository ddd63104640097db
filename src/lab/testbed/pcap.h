// Writes a capture file that tcpdump and Wireshark read (pcap with nanoseconds, Ethernet).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/fd.h"

namespace thalweg::lab {

class PcapFile {
 public:
  // Replaces the file if there is one. Refuses pipes, whose readers could hold up the network.
  static Result<PcapFile> create(const std::string& path);
  ~PcapFile() { flush(); }
  PcapFile(PcapFile&&) = default;
  PcapFile& operator=(PcapFile&&) = default;

  // `when_ns`: nanoseconds since 1970.
  void add(std::int64_t when_ns, std::span<const std::uint8_t> frame);
  // Returns false if the file could not take everything; nothing more is written to it then.
  bool flush();

 private:
  explicit PcapFile(net::Fd file) : file_(std::move(file)) {}
  void append(std::span<const std::uint32_t> words);

  net::Fd file_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace thalweg::lab
