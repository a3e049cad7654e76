// Package api is the private gRPC service between crishim's command line and
// its shim: what CRI has no message for. The messages are in crishim.proto; the
// Go code beside it is generated with
//
//	protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative crishim.proto
//
// (Debian's protobuf-compiler, protoc-gen-go v1.36.12, protoc-gen-go-grpc v1.6.2)
// and committed, so that building needs none of these.
package api
