package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// backend makes the storage of every resource, and keeps the watch caches so that they can be compacted on demand.
type backend struct {
	endpoint   string
	watchCache bool

	lock   sync.Mutex
	caches []*cacher.Cacher
}

var _ generic.RESTOptionsGetter = &backend{}

// GetRESTOptions says how the objects of a resource are stored.
func (b *backend) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	version := schema.GroupVersion{Group: resource.Group, Version: "v1"}
	internal := schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal}
	codec := bareCodec{codecs.CodecForVersions(protobufSerializer(), codecs.UniversalDeserializer(), version, internal)}
	config := storagebackend.NewDefaultConfig("/registry", codec)
	config.EncodeVersioner = version
	config.Transport.ServerList = []string{b.endpoint}
	options := generic.RESTOptions{
		StorageConfig:           config.ForResource(resource),
		Decorator:               generic.UndecoratedStorage,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          resource.Resource,
		CountMetricPollPeriod:   0,
	}
	if b.watchCache && !isUncached(resource) {
		options.Decorator = b.cached
	}
	return options, nil
}

func isUncached(asked schema.GroupResource) bool {
	return slices.ContainsFunc(resources, func(r *resource) bool { return r.uncached && r.groupResource() == asked })
}

func protobufSerializer() runtime.Serializer {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("the codecs speak no protobuf")
	}
	return info.Serializer
}

// bareCodec gives decoded objects no kind of their own, as a conversion to an internal type would.
type bareCodec struct{ runtime.Codec }

// Decode reads an object.
func (c bareCodec) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, found, err := c.Codec.Decode(data, kind, into)
	if err == nil {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return object, found, err
}

// cached puts the watch cache before etcd, as registry.StorageWithCacher does.
func (b *backend) cached(
	config *storagebackend.ConfigForResource,
	prefix string,
	key func(runtime.Object) (string, error),
	newObject, newList func() runtime.Object,
	attributes storage.AttrFunc,
	triggers storage.IndexerFuncs,
	indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroy, err := generic.NewRawStorage(config, newObject, newList, prefix)
	if err != nil {
		return nil, nil, err
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             raw,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      prefix,
		KeyFunc:             key,
		NewFunc:             newObject,
		NewListFunc:         newList,
		GetAttrsFunc:        attributes,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
	if err != nil {
		destroy()
		return nil, nil, err
	}
	b.lock.Lock()
	b.caches = append(b.caches, cached)
	b.lock.Unlock()
	delegator := cacher.NewCacheDelegator(cached, raw)
	var once sync.Once
	return delegator, func() {
		once.Do(func() {
			delegator.Stop()
			cached.Stop()
			destroy()
		})
	}, nil
}

// compact makes the watch caches forget their old snapshots at once; they look every 15 s by themselves.
func (b *backend) compact(revision int64) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, cached := range b.caches {
		if err := cached.Compact(strconv.FormatInt(revision, 10)); err != nil {
			return err
		}
	}
	return nil
}

// store is the registry of a resource.
func (b *backend) store(r *resource) (*genericregistry.Store, error) {
	strategy := newStrategy(r)
	store := &genericregistry.Store{
		NewFunc:                   r.newObject,
		NewListFunc:               r.newList,
		PredicateFunc:             r.predicate,
		DefaultQualifiedResource:  r.groupResource(),
		SingularQualifiedResource: schema.GroupResource{Group: r.groupVersion.Group, Resource: r.singular},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(r.groupResource()),
		// As of pods, in kube-apiserver: who deletes one is told what it was.
		ReturnDeletedObject: r.plural == "pods",
	}
	options := &generic.StoreOptions{RESTOptions: b, AttrFunc: r.attributes}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, fmt.Errorf("%s: %w", r.plural, err)
	}
	return store, nil
}

func (r *resource) predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: r.attributes}
}

// attributes are what selectors look at.
func (r *resource) attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	metadata := accessor(object)
	set := fields.Set{"metadata.name": metadata.GetName()}
	if !r.cluster {
		set["metadata.namespace"] = metadata.GetNamespace()
	}
	for name, value := range r.fields {
		set[name] = value(object)
	}
	return metadata.GetLabels(), set, nil
}

// typedREST adds to a store what discovery tells of it.
type typedREST struct {
	*genericregistry.Store
	resource *resource
}

// ShortNames are what kubectl accepts beside the name.
func (r typedREST) ShortNames() []string { return r.resource.shortNames }

// Categories are the groups of resources that it belongs to.
func (r typedREST) Categories() []string { return nil }

// statusREST is the status subresource.
type statusREST struct{ store *genericregistry.Store }

func newStatusREST(store *genericregistry.Store, r *resource) *statusREST {
	copied := *store
	copied.UpdateStrategy = statusStrategy{newStrategy(r)}
	return &statusREST{&copied}
}

var (
	_ rest.Getter  = &statusREST{}
	_ rest.Updater = &statusREST{}
	_ rest.Patcher = &statusREST{}
)

// New gives an empty object.
func (s *statusREST) New() runtime.Object { return s.store.New() }

// Destroy leaves all to the main resource.
func (s *statusREST) Destroy() {}

// Get reads the object.
func (s *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update writes the status.
func (s *statusREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, false, options)
}
