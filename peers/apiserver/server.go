package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
)

// server is the API server over an etcd.
type server struct {
	url     string
	generic *genericapiserver.GenericAPIServer
	client  kubernetes.Interface
	pods    *genericregistry.Store
	ca      []byte
}

func newServer(o options, etcd *etcd) (*server, error) {
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = 3000, 1000
	config.GoawayChance = o.goawayChance
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.Authentication.Authenticator = bearer(o.token)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openAPIDefinitions, openapinamer.NewDefinitionNamer(scheme))
	config.OpenAPIV3Config.Info.Title = "skopos-peer"
	config.SkipOpenAPIInstallation = true
	if err := logRequests(config, o.requestLog); err != nil {
		return nil, err
	}

	ca, err := serveTLS(config, o)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	informers := informers.NewSharedInformerFactory(client, 0)
	if config.AdmissionControl, err = namespaceLifecycle(client, informers); err != nil {
		return nil, err
	}
	backend := &backend{endpoint: etcd.endpoint, watchCache: o.watchCache}
	config.RESTOptionsGetter = backend
	notFound := notfoundhandler.New(codecs, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	delegate := genericapiserver.NewEmptyDelegateWithCustomHandler(notFound)
	generic, err := config.Complete(informers).New("skopos-peer", delegate)
	if err != nil {
		return nil, err
	}
	generic.ShutdownTimeout = time.Duration(o.shutdownSecs) * time.Second
	s := &server{
		url:     "https://" + config.SecureServing.Listener.Addr().String(),
		generic: generic,
		client:  client,
		ca:      ca,
	}
	if err := s.install(backend); err != nil {
		return nil, err
	}
	debug := generic.Handler.NonGoRestfulMux
	debug.HandleFunc("/debug/compact", onPost(func(request *http.Request) (int64, error) {
		revision, err := etcd.compact(request.Context())
		if err == nil {
			err = backend.compact(revision)
		}
		return revision, err
	}))
	debug.HandleFunc("/debug/expire", onPost(func(request *http.Request) (int64, error) {
		keys := request.URL.Query()["key"]
		for i, key := range keys {
			keys[i] = "/registry/" + key
		}
		return etcd.expire(request.Context(), keys)
	}))
	debug.HandleFunc("/debug/changes", onPost(func(request *http.Request) (int64, error) {
		query := request.URL.Query()
		return etcd.changes(request.Context(), "/registry/"+query.Get("prefix"), query.Get("suffix"))
	}))
	err = generic.AddPostStartHook("informers", func(hook genericapiserver.PostStartHookContext) error {
		informers.Start(hook.Done())
		return nil
	})
	return s, err
}

// install serves the resources.
func (s *server) install(backend *backend) error {
	groups := map[string]*genericapiserver.APIGroupInfo{}
	for _, r := range resources {
		store, err := backend.store(r)
		if err != nil {
			return err
		}
		group, known := groups[r.groupVersion.Group]
		if !known {
			info := genericapiserver.NewDefaultAPIGroupInfo(r.groupVersion.Group, scheme, metainternalscheme.ParameterCodec, codecs)
			info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{}
			group, groups[r.groupVersion.Group] = &info, &info
		}
		served := group.VersionedResourcesStorageMap["v1"]
		served[r.plural] = typedREST{store, r}
		if r.hasStatus {
			served[r.plural+"/status"] = newStatusREST(store, r)
		}
		if r.plural == "pods" {
			s.pods = store
		}
	}
	if err := s.generic.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, groups[core.Group]); err != nil {
		return err
	}
	for _, group := range []string{apps.Group, coordination.Group, discovery.Group} {
		if err := s.generic.InstallAPIGroup(groups[group]); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) run(ctx context.Context) error {
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// makeReady waits until requests are answered, and creates what is there from the start.
func (s *server) makeReady(ctx context.Context, o options) error {
	ready := func(ctx context.Context) (bool, error) {
		answer, err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(answer) == "ok", nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, ready); err != nil {
		return fmt.Errorf("not ready within a minute: %w", err)
	}
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		if err := s.createNamespace(ctx, name); err != nil {
			return err
		}
	}
	if err := s.loadPods(ctx, o.pods, o.managed); err != nil {
		return fmt.Errorf("the pods are not stored: %w", err)
	}
	if o.kubeconfig == "" {
		return nil
	}
	return s.writeKubeconfig(o)
}

func (s *server) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	_, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (s *server) writeKubeconfig(o options) error {
	token := o.token
	if token == "" {
		// kubectl asks for a password before it talks TLS without any credentials.
		token = "not-checked"
	}
	const name = "skopos-peer"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.url, CertificateAuthorityData: s.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, o.kubeconfig)
}

// serveTLS listens on loopback with a certificate of its own, which it keeps in the data directory.
func serveTLS(config *genericapiserver.Config, o options) ([]byte, error) {
	secure := serveroptions.NewSecureServingOptions()
	secure.BindAddress = net.IPv4(127, 0, 0, 1)
	secure.BindPort = o.port
	secure.ServerCert.CertDirectory = filepath.Join(o.dataDir, "certificate")
	var err error
	var port int
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(o.port))
	if secure.Listener, port, err = serveroptions.CreateListener("tcp", address, net.ListenConfig{}); err != nil {
		return nil, err
	}
	secure.BindPort = port
	if err := secure.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	if err := secure.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, err
	}
	config.PublicAddress = secure.BindAddress
	return os.ReadFile(secure.ServerCert.CertKey.CertFile)
}

// bearer lets in whoever has the token; everybody if there is none.
func bearer(token string) authenticator.Request {
	return authenticator.RequestFunc(func(request *http.Request) (*authenticator.Response, bool, error) {
		if token != "" && request.Header.Get("Authorization") != "Bearer "+token {
			return nil, false, nil
		}
		admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
		return &authenticator.Response{User: admin}, true, nil
	})
}

// namespaceLifecycle refuses objects in namespaces that are not there.
func namespaceLifecycle(client kubernetes.Interface, informers informers.SharedInformerFactory) (*lifecycle.Lifecycle, error) {
	plugin, err := lifecycle.NewLifecycle(sets.New(metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic))
	if err != nil {
		return nil, err
	}
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(informers)
	return plugin, plugin.ValidateInitialization()
}

// onPost answers POST with the revision, or the number, that what is asked for gives. `/debug/compact` forgets all versions but the newest, in
// etcd and in the watch caches; `/debug/expire?key=configmaps/default/a&key=...` lets objects end together.
func onPost(do func(*http.Request) (int64, error)) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			http.Error(response, "only POST is answered", http.StatusMethodNotAllowed)
			return
		}
		revision, err := do(request)
		if err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(response).Encode(map[string]int64{"revision": revision})
	}
}
