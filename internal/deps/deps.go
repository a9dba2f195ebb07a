package deps

import (
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/knadh/koanf/parsers/yaml"
	_ "github.com/knadh/koanf/providers/file"
	_ "github.com/knadh/koanf/providers/posflag"
	_ "github.com/knadh/koanf/v2"
	_ "github.com/spf13/cobra"
	_ "go.etcd.io/etcd/client/v3"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "go.yaml.in/yaml/v3"
	_ "go4.org/unsafe/assume-no-moving-gc"
	_ "golang.org/x/image/font/gofont/goregular"
	_ "golang.org/x/term"
	_ "gonum.org/v1/gonum/blas/gonum"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "gorgonia.org/gorgonia"
	_ "gorgonia.org/tensor"
	_ "pgregory.net/rapid"
)
