// TCP NewReno (RFC 5681, 6582): the shared sender without changes.
#include "sim/tcp/tcp_factory.h"
#include "sim/tcp/tcp_sender.h"

namespace thalweg::sim {
namespace {

class NewRenoSender final : public TcpSender {
 public:
  using TcpSender::TcpSender;
};

}  // namespace

MadeTransport make_newreno(NewRenoParameters parameters, const KeyValues& given) {
  return make_tcp<NewRenoSender>("newreno", parameters, given);
}

}  // namespace thalweg::sim
