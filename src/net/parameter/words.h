// The longer things that a parameter server tells its clients, as JSON in messages of
// wire/ps_message.h (docs/parameter-server.md has the fields).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "net/atp/job_message.h"
#include "net/atp/node.h"

namespace thalweg {

// A longer one ends the connection.
inline constexpr std::size_t kMaxPsWords = std::size_t{1} << 16;

// How gradients and values travel.
struct PsWelcome {
  Transport transport = Transport::kTcp;
  // Of DLCP: the port of the server's endpoint, its token, and the name that the client's has.
  std::uint16_t port = 0;
  std::uint64_t token = 0;
  std::string name;
  double push_loss = 0;
  double pull_loss = 0;
};
[[nodiscard]] std::string to_text(const PsWelcome& welcome);
[[nodiscard]] Result<PsWelcome> ps_welcome_from(const std::string& text);

// A job over ATP of all workers, with the parameter server as its server.
struct AtpGroupGrant {
  std::uint64_t number = 0;          // of the group; none has the number of an earlier one
  JobGrant job;                      // elements: of a packet
  std::vector<std::string> workers;  // "host:port" of each
  std::string server;                // "host:port"
};
[[nodiscard]] std::string to_text(const AtpGroupGrant& group);
[[nodiscard]] Result<AtpGroupGrant> atp_group_from(const std::string& text);
// Job, ends, key and elements.
[[nodiscard]] Status fill_from(const AtpGroupGrant& group, AtpNodeOptions& options);

// "tcp", "dlcp", "atp".
[[nodiscard]] const char* ps_transport_name(Transport transport);

}  // namespace thalweg
