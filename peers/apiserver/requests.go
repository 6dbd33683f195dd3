package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// logRequests appends a line to a file for each request, when it arrives: microseconds since 1970, user agent, verb, resource. Nothing
// is buffered here, so the lines of a server that is killed are complete.
func logRequests(config *genericapiserver.Config, name string) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	resolver := genericapiserver.NewRequestInfoResolver(config)
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		next := build(api, config)
		return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			if info, err := resolver.NewRequestInfo(request); err == nil {
				_, _ = file.WriteString(requestLine(request, info))
			}
			next.ServeHTTP(response, request)
		})
	}
	return nil
}

func requestLine(request *http.Request, info *apirequest.RequestInfo) string {
	verb, resource := info.Verb, info.Resource
	if strings.HasPrefix(request.Header.Get("Content-Type"), string(types.ApplyYAMLPatchType)) {
		verb = "apply"
	}
	if !info.IsResourceRequest {
		resource = "-"
	}
	agent := strings.ReplaceAll(request.UserAgent(), " ", "_")
	return fmt.Sprintf("%d %s %s %s\n", time.Now().UnixMicro(), agent, verb, resource)
}

// changes gives how often the stored objects with a prefix and a suffix have been written since each was created, all together. A write
// that changes nothing is not stored, and does not count.
func (e *etcd) changes(ctx context.Context, prefix, suffix string) (int64, error) {
	answer, err := e.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pair := range answer.Kvs {
		if bytes.HasSuffix(pair.Key, []byte(suffix)) {
			sum += pair.Version
		}
	}
	return sum, nil
}
