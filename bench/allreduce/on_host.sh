#!/bin/sh
# mpirun calls this instead of ssh in `thalweg bench allreduce --netns`: on_host.sh ADDRESS COMMAND…
# THALWEG_BENCH_HOSTS is a folder with a symbolic link per address, to the host's network namespace.
host=$1
shift
exec nsenter --net="$THALWEG_BENCH_HOSTS/$host" sh -c "$*"
