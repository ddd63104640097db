// The factory of a TCP-like transport: validated parameters and the type of its senders.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sim/tcp/parameter_binder.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim {

// `Parameters` derives from TcpParameters; `SenderType` is constructed from them, the flow's bytes
// and the window to start with.
template <class SenderType, class Parameters>
class TcpFactory final : public TransportFactory {
 public:
  TcpFactory(Parameters parameters, std::string description)
      : parameters_(std::move(parameters)), description_(std::move(description)) {}

  [[nodiscard]] std::unique_ptr<Sender> make_sender(std::uint64_t flow_bytes,
                                                    std::optional<double> window) const override {
    return std::make_unique<SenderType>(parameters_, flow_bytes, window);
  }
  [[nodiscard]] std::unique_ptr<StreamSender> make_stream() const override {
    if constexpr (SenderType::kLooksAtSize) return nullptr;
    return std::make_unique<SenderType>(parameters_, 0, std::nullopt);
  }
  [[nodiscard]] std::uint64_t piece_bytes() const override {
    if constexpr (SenderType::kLooksAtSize) return 0;
    return static_cast<std::uint64_t>(parameters_.mss.count());
  }
  [[nodiscard]] std::uint32_t header_bytes() const override {
    return static_cast<std::uint32_t>(parameters_.header.count());
  }
  [[nodiscard]] bool selective() const override { return parameters_.sack; }
  [[nodiscard]] std::string describe() const override { return description_; }

 private:
  Parameters parameters_;
  std::string description_;
};

// Binds the fields of each struct and their ranges, in the order in which they are printed.
void bind_parameters(ParameterBinder& binder, TcpParameters& parameters);
void bind_parameters(ParameterBinder& binder, CubicParameters& parameters);
void bind_parameters(ParameterBinder& binder, DctcpParameters& parameters);
void bind_parameters(ParameterBinder& binder, PiasParameters& parameters);
void bind_parameters(ParameterBinder& binder, PfabricParameters& parameters);

template <class SenderType, class Parameters>
MadeTransport make_tcp(std::string_view name, Parameters parameters, const KeyValues& given) {
  ParameterBinder binder(name, given);
  bind_parameters(binder, parameters);
  THALWEG_TRY_STATUS(binder.finish());
  return MadeTransport(std::make_unique<TcpFactory<SenderType, Parameters>>(std::move(parameters),
                                                                            binder.describe()));
}

}  // namespace thalweg::sim
