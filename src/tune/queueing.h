// The queueing theory of DLCP's appendix B: a strict-priority port as a chain of M/M/1/m queues.
//
// The room m is a real number of packets here, so that a solver can vary it; for whole m, r(ρ, m)
// is the loss of M/M/1/m. For 0 < ρ < 1 it falls strictly with m and is convex: with u = ρ^−m, r =
// (1 − ρ) / (u − ρ) and −r' = (1 − ρ)·ln(1/ρ)·u / (u − ρ)², whose last factor falls with u > ρ,
// hence with m. Everything is computed as a logarithm, because losses of interest go down to
// 10^−1000.
#pragma once

#include <span>
#include <vector>

namespace thalweg::tune {

// ln r(ρ, m), the logarithm of the share of arrivals that find m packets in the system. Requires 0
// <= ρ < 1 and m >= 0. Minus infinity if nothing is lost (ρ = 0, m > 0).
double log_loss(double utilization, double room);

// ln(−∂r/∂m): how fast the loss falls with more room. Minus infinity for ρ = 0.
double log_loss_slope(double utilization, double room);

// The utilization of each queue of a port, the most urgent first: ρ_i = λ_i / μ_i, where a queue's
// service rate is what the more urgent ones leave, μ_i = μ·∏_{k<i} (1 − ρ_k) = μ − Σ_{k<i} λ_k.
// Requires that the `shares` of the arrivals add up to 1 and that 0 < load < 1, so that every ρ_i
// is below 1.
std::vector<double> queue_utilizations(std::span<const double> shares, double load);

}  // namespace thalweg::tune
