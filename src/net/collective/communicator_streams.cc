// By which addresses a communicator's ranks find each other, and the streams between them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "net/bootstrap/interfaces.h"
#include "net/collective/communicator_core.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {

Result<Communicator::Core::Listening> Communicator::Core::prepare_streams(EngineOptions& engine,
                                                                          const std::string& prefix,
                                                                          Time until) {
  const Environment& environment = job_->environment;
  Listening listening{.addresses = {*SocketAddress::numeric("127.0.0.1:0")}};
  if (job_->client) {
    THALWEG_TRY(listening.addresses, rank_addresses(environment.interfaces, job_->own_address));
  }
  std::vector<std::string> places;
  for (const SocketAddress& address : listening.addresses) {
    THALWEG_TRY(Fd socket, listen_tcp(address.to_string()));
    places.push_back(SocketAddress::local_of(socket.get()).unmapped().to_string());
    listening.sockets.push_back(std::move(socket));
  }
  if (job_->job_key) {
    engine.key = std::make_shared<StreamKey>(*job_->job_key, engine.signature, random_number());
  }
  listening.own = fmt::format("{}", fmt::join(places, ","));
  if (engine.key) listening.own = engine.key->address(listening.own);
  if (job_->client) {
    THALWEG_TRY_STATUS(job_->set(fmt::format("{}{}", prefix, rank_), listening.own, until));
  }
  engine.connect = [job = job_, prefix, key = engine.key, own = listening.addresses](
                       int rank, std::uint32_t lane, Time by) -> Result<DialedStream> {
    THALWEG_TRY(const std::string address, job->get(fmt::format("{}{}", prefix, rank), by));
    const auto each = static_cast<std::size_t>(job->environment.streams);
    return connect_stream(address, key.get(), by, {.own = own, .each = each, .stream = lane});
  };
  return listening;
}

void Communicator::Core::prepare_messages(EngineOptions& engine, const std::string& own) {
  messages_ = std::make_shared<Messages>();
  messages_->options = {
      .rank = rank_,
      .size = size_,
      .signature = engine.signature,
      .connect = [connect = engine.connect](int rank, Time by) { return connect(rank, 0, by); },
      .broken = {}};
  engine.on_message_stream = [messages = messages_](int rank, Fd stream) {
    const Result<std::shared_ptr<Mailbox>> box = messages->get();
    if (box.ok()) (*box)->adopt(rank, std::move(stream));
  };
  // A process that is alone can still send to itself.
  if (!job_->client) {
    messages_->options.connect = [own, key = engine.key](int /*rank*/, Time by) {
      return connect_stream(own, key.get(), by);
    };
  }
}

}  // namespace thalweg
