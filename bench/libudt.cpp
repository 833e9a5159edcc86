// Sends or receives bytes with libudt 4.11, for bench/udt.py. It takes the arguments of the example udt_bulk:
//   libudt listen|call ADDRESS:PORT send|receive BYTES STREAMS check|drop [BUFFER_BYTES]
#include <arpa/inet.h>
#include <udt/udt.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;
constexpr int kPeriod = 1000003;
constexpr int kBlock = 256 << 10;

static std::vector<char> pattern() {
    std::vector<char> data(kPeriod + kBlock);
    uint64_t state = 0x9e3779b97f4a7c15;
    for (int i = 0; i < kPeriod; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data[i] = static_cast<char>(state);
    }
    for (int i = 0; i < kBlock; i++) data[kPeriod + i] = data[i];
    return data;
}

[[noreturn]] static void fail(const char *what) {
    fprintf(stderr, "libudt: %s: %s\n", what, UDT::getlasterror().getErrorMessage());
    exit(1);
}

static void configure(UDTSOCKET socket, int mss, int buffer) {
    int window = buffer / (mss - 44) + 1;
    UDT::setsockopt(socket, 0, UDT_MSS, &mss, sizeof mss);
    UDT::setsockopt(socket, 0, UDT_FC, &window, sizeof window);
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &buffer, sizeof buffer);
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &buffer, sizeof buffer);
    int kernel = 16 << 20;
    UDT::setsockopt(socket, 0, UDP_SNDBUF, &kernel, sizeof kernel);
    UDT::setsockopt(socket, 0, UDP_RCVBUF, &kernel, sizeof kernel);
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    std::string role = argv[1], address = argv[2], direction = argv[3];
    int64_t bytes = atoll(argv[4]);
    int streams = atoi(argv[5]);
    bool checks = !strcmp(argv[6], "check");
    int buffer = argc > 7 ? atoi(argv[7]) : 64 << 20;
    int mss = getenv("MSS") ? atoi(getenv("MSS")) : 1500;
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(atoi(address.c_str() + address.find(':') + 1)));
    inet_pton(AF_INET, address.substr(0, address.find(':')).c_str(), &at.sin_addr);
    UDT::startup();
    std::vector<UDTSOCKET> open;
    if (role == "listen") {
        UDTSOCKET listener = UDT::socket(AF_INET, SOCK_STREAM, 0);
        configure(listener, mss, buffer);
        if (UDT::ERROR == UDT::bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof at)) fail("bind");
        UDT::listen(listener, 64);
        for (int i = 0; i < streams; i++) {
            sockaddr_in from;
            int length = sizeof from;
            UDTSOCKET one = UDT::accept(listener, reinterpret_cast<sockaddr *>(&from), &length);
            if (one == UDT::INVALID_SOCK) fail("accept");
            open.push_back(one);
        }
    } else {
        for (int i = 0; i < streams; i++) {
            UDTSOCKET one = UDT::socket(AF_INET, SOCK_STREAM, 0);
            configure(one, mss, buffer);
            if (UDT::ERROR == UDT::connect(one, reinterpret_cast<sockaddr *>(&at), sizeof at)) fail("connect");
            open.push_back(one);
        }
    }
    const std::vector<char> data = pattern();
    std::vector<Clock::time_point> first(streams), last(streams);
    std::vector<std::thread> threads;
    for (int i = 0; i < streams; i++) {
        threads.emplace_back([&, i] {
            UDTSOCKET one = open[i];
            std::vector<char> block(kBlock);
            for (int64_t moved = 0; moved < bytes;) {
                int want = static_cast<int>(std::min<int64_t>(bytes - moved, kBlock));
                const char *from = data.data() + moved % kPeriod;
                int n = direction == "send" ? UDT::send(one, from, want, 0) : UDT::recv(one, block.data(), want, 0);
                if (n == UDT::ERROR) fail(direction.c_str());
                if (!moved) first[i] = Clock::now();
                if (direction != "send" && checks && memcmp(block.data(), from, n)) {
                    fprintf(stderr, "libudt: wrong bytes after %lld\n", static_cast<long long>(moved));
                    exit(1);
                }
                moved += n;
            }
            last[i] = Clock::now();
            // A sender's close waits until all has been acknowledged. A receiver waits for the sender's shutdown.
            if (direction != "send") UDT::recv(one, block.data(), kBlock, 0);
            UDT::close(one);
        });
    }
    for (auto &thread : threads) thread.join();
    if (direction != "send") {
        auto begun = first[0], ended = last[0];
        for (int i = 1; i < streams; i++) {
            begun = std::min(begun, first[i]);
            ended = std::max(ended, last[i]);
        }
        printf("%lld %f\n", static_cast<long long>(bytes * streams), std::chrono::duration<double>(ended - begun).count());
    }
    UDT::cleanup();
}
